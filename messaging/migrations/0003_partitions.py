"""Tables in daily partitions, which Django cannot describe; their days are made and dropped by services.forgetting."""

from django.db import migrations

DOCUMENTS = """
CREATE TABLE messaging_documentcompleted (
    trigger_id uuid NOT NULL,
    sender_id uuid NOT NULL,
    document_id varchar(96) NOT NULL,
    forget_on date NOT NULL,
    delivery_id uuid NOT NULL,
    outcome varchar(10) NOT NULL,
    completed_at timestamptz NOT NULL,
    PRIMARY KEY (trigger_id, sender_id, document_id, forget_on)
) PARTITION BY RANGE (forget_on)
"""

REQUESTS = """
CREATE TABLE messaging_rememberedrequest (
    sender_id uuid NOT NULL,
    request_id varchar(96) NOT NULL,
    day date NOT NULL,
    first_sent timestamptz NOT NULL,
    content bytea NOT NULL,
    state varchar(10) NOT NULL,
    message_id uuid,
    delivery_id uuid,
    client_id varchar(96) NOT NULL DEFAULT '',
    status smallint,
    headers jsonb,
    body bytea,
    PRIMARY KEY (sender_id, request_id, day)
) PARTITION BY RANGE (day)
"""

BY_CLIENT = """
CREATE INDEX remembered_by_client ON messaging_rememberedrequest (sender_id, client_id) WHERE client_id <> ''
"""

UNDECIDED = """
CREATE INDEX remembered_undecided ON messaging_rememberedrequest (day) WHERE state IN ('running', 'in_doubt')
"""

BY_DELIVERY = """
CREATE INDEX remembered_by_delivery ON messaging_rememberedrequest (delivery_id) WHERE delivery_id IS NOT NULL
"""


class Migration(migrations.Migration):
    dependencies = [("messaging", "0002_deliveries_and_memory")]

    operations = [
        migrations.RunSQL(DOCUMENTS, "DROP TABLE messaging_documentcompleted"),
        migrations.RunSQL(REQUESTS, "DROP TABLE messaging_rememberedrequest"),
        migrations.RunSQL(BY_CLIENT, migrations.RunSQL.noop),
        migrations.RunSQL(UNDECIDED, migrations.RunSQL.noop),
        migrations.RunSQL(BY_DELIVERY, migrations.RunSQL.noop),
    ]
