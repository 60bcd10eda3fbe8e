"""Keeps `xid` true: an update of a row is a change that the lake has to take up, whoever writes it and however."""

from django.db import migrations

FUNCTION = """
CREATE FUNCTION messaging_written_by() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.xid := pg_current_xact_id()::text::bigint;
    RETURN NEW;
END
$$
"""
TABLES = ("messaging_message", "messaging_transmission", "messaging_signal", "messaging_delivery")


class Migration(migrations.Migration):
    dependencies = [("messaging", "0004_pipeline")]

    operations = [
        migrations.RunSQL(FUNCTION, "DROP FUNCTION messaging_written_by"),
        *(
            migrations.RunSQL(
                f"CREATE TRIGGER written_by BEFORE UPDATE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION messaging_written_by()",
                f"DROP TRIGGER written_by ON {table}",
            )
            for table in TABLES
        ),
    ]
