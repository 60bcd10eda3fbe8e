import django.core.validators
import django.db.models.deletion
import partners.transports
import rmhub.ids
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Agreement',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('tpa_id', models.CharField(help_text='It is in every message, so both sides must use the same one.', max_length=255, unique=True, verbose_name='TPAId')),
                ('name', models.CharField(blank=True, max_length=120)),
                ('log_columns', models.JSONField(blank=True, default=dict, help_text='Our column -> theirs, for reconciliation; empty = the columns that our own export has.', verbose_name="columns of the partner's log")),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('tpa_id',),
            },
        ),
        migrations.CreateModel(
            name='Endpoint',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(default='main', help_text='To tell several endpoints of a party apart.', max_length=80)),
                ('transport', models.CharField(choices=partners.transports.choices, default='http', max_length=10)),
                ('uri', models.CharField(help_text='The SenderURI and ReceiverURI on the wire. Mail: mailto:orders@partner.example, files: sftp://files.partner.example/inbox/', max_length=500, verbose_name='messaging service URI')),
                ('error_uri', models.CharField(help_text='Where errors go. Empty: to the URI.', max_length=500, verbose_name='error URI')),
                ('address', models.CharField(blank=True, help_text='Bytes go here instead of to the URI.', max_length=500, verbose_name='transport address')),
                ('error_address', models.CharField(blank=True, max_length=500, verbose_name='transport address for errors')),
                ('server', models.CharField(blank=True, help_text="Mail: smtp+starttls://relay.example:587, empty = the hub's own relay. Files: sftp://host:port.", max_length=500, verbose_name='mail or file server')),
                ('host_key', models.CharField(blank=True, help_text='Its fingerprint, as ssh-keygen -l prints it. Several are separated by spaces.', max_length=200, verbose_name='key of the file server')),
                ('trusted_certificates', models.TextField(blank=True, default='', help_text="PEM text. The server may show only what these vouch for: an authority's, or its own certificate. Empty: every authority that this machine trusts.")),
                ('service_address', models.CharField(blank=True, default='', help_text='Below it the partner answers “status” and “echo”. Empty: they have none.', max_length=500, verbose_name='address of test services')),
                ('connect_timeout', models.PositiveIntegerField(default=10, validators=[django.core.validators.MinValueValidator(1)], verbose_name='connect within')),
                ('read_timeout', models.PositiveIntegerField(default=30, validators=[django.core.validators.MinValueValidator(1)], verbose_name='answer within')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ('party_id', 'name'),
                'constraints': [models.UniqueConstraint(fields=('uri',), name='endpoint_uri_unique')],
            },
        ),
        migrations.CreateModel(
            name='PartnerGroup',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80, unique=True)),
                ('description', models.CharField(blank=True, default='', max_length=255)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.CreateModel(
            name='Revision',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('number', models.BigIntegerField(default=1)),
            ],
        ),
        migrations.CreateModel(
            name='AgreementVersion',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('draft', 'Draft'), ('active', 'Active'), ('retired', 'Retired'), ('disabled', 'Disabled')], default='draft', max_length=10)),
                ('profile', models.CharField(choices=[('ebxml', 'ebXML Reliable Messaging (0-080)'), ('repeatable', 'Repeatable HTTP requests'), ('stream', 'Transactional stream (SOAP)'), ('wsat', 'Atomic transactions (WS-AtomicTransaction)')], default='ebxml', max_length=20, verbose_name='wire profile')),
                ('semantics', models.CharField(choices=[('OnceAndOnlyOnce', 'Once and only once'), ('AtMostOnce', 'At most once'), ('BestEffort', 'Best effort')], default='OnceAndOnlyOnce', max_length=20, verbose_name='delivery semantics')),
                ('timeout', models.PositiveIntegerField(default=60, help_text='Wait for an answer after the first send.', verbose_name='Timeout')),
                ('retries', models.PositiveIntegerField(default=5, validators=[django.core.validators.MaxValueValidator(1000)], verbose_name='Retries')),
                ('retry_interval', models.PositiveIntegerField(default=300, verbose_name='RetryInterval')),
                ('transport_retries', models.PositiveSmallIntegerField(default=2, help_text='Attempts below reliable messaging.')),
                ('transport_retry_interval', models.PositiveIntegerField(default=10, verbose_name='transport retry interval')),
                ('transient_ceiling', models.PositiveIntegerField(default=86400, help_text='Transient errors for longer open an incident.', verbose_name='ceiling for pauses')),
                ('detect_repeats', models.BooleanField(default=False, verbose_name='detect repeats of best-effort messages')),
                ('strict_sequence', models.BooleanField(default=False, verbose_name='refuse old sequence numbers')),
                ('memory_window', models.PositiveIntegerField(default=34560000, help_text='How long we remember what came, to recognise repeats.', verbose_name='our memory window')),
                ('partner_window', models.PositiveIntegerField(default=86400, help_text='How long they remember ids: nothing is repeated past it.', verbose_name="partner's memory window")),
                ('clock_skew', models.PositiveIntegerField(default=300, verbose_name='clock skew')),
                ('exchange_mode', models.CharField(choices=[('one_way', 'One way: an acknowledgement'), ('synchronous', "Synchronous: the application's own response")], default='one_way', max_length=12, verbose_name='we answer with')),
                ('exchange_identity', models.CharField(choices=[('first_sent', 'Message id and first-instance time'), ('key', 'Idempotency-Key')], default='first_sent', max_length=12, verbose_name='requests are identified by')),
                ('repeat_interval', models.PositiveIntegerField(default=20, help_text='The wait before the first repeat.', validators=[django.core.validators.MinValueValidator(1)], verbose_name='repeat after')),
                ('repeat_interval_max', models.PositiveIntegerField(default=600, validators=[django.core.validators.MinValueValidator(1)], verbose_name='longest wait between repeats')),
                ('ordered', models.BooleanField(default=False, help_text='ebXML always is.', verbose_name='in order, one at a time')),
                ('max_in_flight', models.PositiveSmallIntegerField(default=16, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(256)], verbose_name='messages in flight')),
                ('stream_concurrency', models.PositiveSmallIntegerField(default=16, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(64)], verbose_name='requests on the wire at once')),
                ('resend_schedule', models.CharField(default='30,30,30,300,300,300,1800,1800,1800,21600', help_text='Waits with commas between them; the last one repeats.', max_length=255, verbose_name='resend everything after, s')),
                ('order_ack_timeout', models.PositiveIntegerField(default=500, verbose_name='OrderAckTimeout, ms')),
                ('max_order_ack_delay', models.PositiveIntegerField(default=10000, verbose_name='MaximumOrderAckDelay, ms')),
                ('time_to_live', models.PositiveIntegerField(default=345600, help_text='0 s: no limit.', verbose_name='time to live')),
                ('final_receipt', models.BooleanField(default=False, verbose_name='ask for final receipts')),
                ('final_receipt_within', models.PositiveIntegerField(default=345600, verbose_name='final receipt within')),
                ('inbound_quota', models.PositiveIntegerField(default=0, help_text='0: no limit.', verbose_name='documents that may wait here')),
                ('coordination_version', models.CharField(choices=[('2004/10', '1.0 (2004/10)'), ('2006/06', '1.1 and 1.2 (2006/06)')], default='2006/06', max_length=8, verbose_name='WS-Coordination')),
                ('addressing_profile', models.CharField(choices=[('seed', 'ReplyTo where an answer is awaited'), ('oasis', 'From, and ReplyTo none (2006/06 practice)')], default='seed', max_length=8, verbose_name='headers of notifications')),
                ('addressing_strict', models.BooleanField(default=False, help_text='Off: a notification without ReplyTo is answered where its sender registered.', verbose_name='refuse what lacks a header')),
                ('other_servers', models.CharField(blank=True, default='', help_text='Addresses in messages (FaultTo, RegistrationService) may lie there too: https://txn.example:8443.', max_length=1000, verbose_name='other servers of the partner')),
                ('soap_version', models.CharField(choices=[('1.1', 'SOAP 1.1'), ('1.2', 'SOAP 1.2')], default='1.1', max_length=4, verbose_name='SOAP')),
                ('acknowledged_within', models.PositiveIntegerField(default=0, help_text="What we send: from the moment the hub accepts the document to the partner's acknowledgement. 0 s: no target.", validators=[django.core.validators.MaxValueValidator(2678400)], verbose_name='SLA: acknowledged within')),
                ('acknowledged_percent', models.FloatField(default=99.0, verbose_name='SLA: acknowledged in time, %')),
                ('processed_within', models.PositiveIntegerField(default=0, help_text="What we receive: until every trigger's service has processed the document. With final receipts also what we send: until the partner's final receipt. 0 s: no target.", validators=[django.core.validators.MaxValueValidator(2678400)], verbose_name='SLA: processed within')),
                ('processed_percent', models.FloatField(default=99.0, verbose_name='SLA: processed in time, %')),
                ('max_message_bytes', models.PositiveIntegerField(default=20971520, validators=[django.core.validators.MinValueValidator(1024)], verbose_name='largest message, bytes')),
                ('write_namespace', models.BooleanField(default=True, verbose_name='write the namespace')),
                ('write_padded_numbers', models.BooleanField(default=True, verbose_name='write sequence numbers with zeros')),
                ('note', models.CharField(blank=True, max_length=255, verbose_name='what this version changes')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('activated_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('agreement', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='partners.agreement')),
                ('own_endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='partners.endpoint')),
                ('partner_endpoint', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='partners.endpoint')),
            ],
            options={
                'ordering': ('agreement_id', '-number'),
                'constraints': [models.UniqueConstraint(fields=('agreement', 'number'), name='agreement_version_number_unique'), models.UniqueConstraint(condition=models.Q(('state', 'active')), fields=('agreement',), name='agreement_one_active_version')],
                'indexes': [models.Index(condition=models.Q(('acknowledged_within__gt', 0), ('processed_within__gt', 0), _connector='OR'), fields=['agreement'], name='agreement_version_with_target')],
            },
        ),
        migrations.CreateModel(
            name='Party',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(help_text='What people call them. It appears on every page.', max_length=120, unique=True)),
                ('is_own', models.BooleanField(default=False, help_text='One of our own organisations, in whose name the hub sends.', verbose_name='our own organisation')),
                ('contact', models.TextField(blank=True, help_text='Names, telephone numbers, mail addresses.', verbose_name='contacts')),
                ('time_zone', models.CharField(blank=True, default='', help_text='IANA name; pages can show times in it.', max_length=64)),
                ('hours', models.CharField(blank=True, default='', max_length=120, verbose_name='business hours')),
                ('archived_at', models.DateTimeField(blank=True, help_text='Archived: not offered any more, what it did stays.', null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('groups', models.ManyToManyField(blank=True, related_name='partners', to='partners.partnergroup')),
            ],
            options={
                'verbose_name_plural': 'parties',
                'ordering': ('name',),
            },
        ),
        migrations.AddField(
            model_name='endpoint',
            name='party',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='endpoints', to='partners.party'),
        ),
        migrations.CreateModel(
            name='Credential',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('direction', models.CharField(choices=[('inbound', 'The partner shows it to us'), ('outbound', 'We show it to the partner')], max_length=10, verbose_name='who shows it')),
                ('kind', models.CharField(choices=[('basic', 'HTTP Basic'), ('bearer', 'Bearer token'), ('certificate', 'Client certificate (SHA-256 fingerprint)'), ('ssh_key', 'SSH private key')], max_length=12)),
                ('label', models.CharField(blank=True, help_text='To tell several apart.', max_length=80, verbose_name='name')),
                ('username', models.CharField(blank=True, max_length=120, verbose_name='user name')),
                ('secret_hash', models.CharField(blank=True, max_length=255)),
                ('secret_encrypted', models.BinaryField(blank=True, default=b'')),
                ('fingerprint', models.CharField(blank=True, max_length=64, verbose_name='SHA-256 fingerprint')),
                ('certificate', models.TextField(blank=True, default='', help_text='PEM of what was uploaded, for its facts.')),
                ('valid_from', models.DateTimeField(blank=True, help_text='Empty: at once.', null=True)),
                ('valid_until', models.DateTimeField(blank=True, help_text='Empty: it does not expire. A certificate has its own date.', null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('party', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='credentials', to='partners.party')),
            ],
            options={
                'ordering': ('party_id', 'direction', '-created_at'),
            },
        ),
        migrations.AddField(
            model_name='agreement',
            name='own_party',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='partners.party', verbose_name='our party'),
        ),
        migrations.AddField(
            model_name='agreement',
            name='partner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='agreements', to='partners.party'),
        ),
        migrations.CreateModel(
            name='PartyIdentifier',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('context', models.CharField(help_text='The scheme: DUNS, GLN, URI ...', max_length=120, verbose_name='type')),
                ('value', models.CharField(max_length=255)),
                ('rank', models.PositiveSmallIntegerField(default=0)),
                ('party', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identifiers', to='partners.party')),
            ],
            options={
                'ordering': ('rank', 'id'),
                'constraints': [models.UniqueConstraint(fields=('context', 'value'), name='party_identifier_unique')],
            },
        ),
        migrations.CreateModel(
            name='Poller',
            fields=[
                ('id', models.UUIDField(default=rmhub.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(help_text='What people call it. It appears on every page.', max_length=80)),
                ('kind', models.CharField(choices=[('imap', 'Mailbox (IMAP)'), ('sftp', 'Folder (SFTP)')], max_length=10)),
                ('url', models.CharField(help_text='Mailbox: imaps://mail.example.org/INBOX. Folder: sftp://files.example.org/outgoing/', max_length=500, verbose_name='address')),
                ('username', models.CharField(blank=True, max_length=120, verbose_name='user name')),
                ('secret_encrypted', models.BinaryField(blank=True, default=b'')),
                ('secret_kind', models.CharField(choices=[('basic', 'HTTP Basic'), ('bearer', 'Bearer token'), ('certificate', 'Client certificate (SHA-256 fingerprint)'), ('ssh_key', 'SSH private key')], default='basic', max_length=12)),
                ('host_key', models.CharField(blank=True, help_text='Folders: its fingerprint, as ssh-keygen -l prints it. Several, while a key is replaced, are separated by spaces.', max_length=200, verbose_name='key of the server')),
                ('trusted_checker', models.CharField(blank=True, help_text='Mailboxes: the name in Authentication-Results by which your mail server says that it has checked a sender (RFC 8601). Mails that it has not checked are not taken.', max_length=255, verbose_name='trusted authentication server')),
                ('interval', models.PositiveIntegerField(default=30, validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(86400)], verbose_name='poll every')),
                ('enabled', models.BooleanField(default=True, help_text='Off: what lies there waits.', verbose_name='poll it')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('endpoint', models.ForeignKey(help_text='The messages are for its URI; its timeouts hold for the server too.', on_delete=django.db.models.deletion.CASCADE, related_name='pollers', to='partners.endpoint', verbose_name='endpoint of ours')),
                ('partner', models.ForeignKey(blank=True, help_text='Folders: who puts files there; whatever lies in the folder counts as sent by them.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='partners.party')),
            ],
            options={
                'ordering': ('name',),
                'constraints': [models.UniqueConstraint(fields=('name',), name='poller_name_unique')],
            },
        ),
        migrations.CreateModel(
            name='AgreementService',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('service', models.CharField(max_length=255)),
                ('action', models.CharField(default='*', max_length=255)),
                ('direction', models.CharField(choices=[('send', 'We send'), ('receive', 'We receive'), ('both', 'Both ways')], default='both', max_length=10)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='services', to='partners.agreementversion')),
            ],
            options={
                'ordering': ('service', 'action'),
                'constraints': [models.UniqueConstraint(fields=('version', 'service', 'action'), name='agreement_service_unique')],
            },
        ),
    ]
