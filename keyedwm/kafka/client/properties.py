"""Names of the properties that Kafka's Java clients know (consumer, producer and admin client, 4.1), lower case.

Rule: this is only a list. Each name in it is accepted, with or without an effect here.
"""

from __future__ import annotations

_CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack config.providers
default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes
fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
heartbeat.interval.ms interceptor.classes internal.leave.group.on.close
internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer max.partition.fetch.bytes
max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms share.acknowledgement.mode
value.deserializer
"""
_PRODUCER = """
acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
partitioner.class partitioner.ignore.keys retries transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.serializer
"""
_COMMON = """
auto.include.jmx.reporter bootstrap.controllers bootstrap.servers client.dns.lookup client.id connections.max.idle.ms
metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms
reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms security.protocol security.providers
send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
"""
_SSL = """
ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type
"""
_SASL = """
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
"""

KNOWN = frozenset(f"{_CONSUMER} {_PRODUCER} {_COMMON} {_SSL} {_SASL}".split())
# Our own property: the user's function `module:attribute`, which returns tokens for OAUTHBEARER.
OAUTH_PROVIDER = "sasl.oauthbearer.token.provider"
