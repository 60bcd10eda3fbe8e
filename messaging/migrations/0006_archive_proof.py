"""What proves that an archived message is in the store as it was copied; and which payload names a file."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("messaging", "0005_written_by"),
    ]

    operations = [
        migrations.AddField(
            model_name="archivedmessage",
            name="contents",
            field=models.JSONField(default=list, help_text="SHA-256 of its payloads, in their order."),
        ),
        migrations.AddField(
            model_name="archivedmessage",
            name="entries",
            field=models.PositiveIntegerField(
                default=0, help_text="How many rows were copied; 0 = it changed since, and is copied anew."
            ),
        ),
        migrations.AddField(
            model_name="archivedmessage",
            name="written",
            field=models.BigIntegerField(default=0, help_text="The highest transaction of the rows that were copied."),
        ),
        migrations.AddIndex(
            model_name="archivedmessage",
            index=models.Index(
                condition=models.Q(("state", "archived"), _negated=True),
                fields=["completed_at", "id"],
                name="archived_in_store",
            ),
        ),
        migrations.AddIndex(
            model_name="payload",
            index=models.Index(
                condition=models.Q(("stored_as", ""), _negated=True), fields=["stored_as"], name="payload_by_file"
            ),
        ),
    ]
