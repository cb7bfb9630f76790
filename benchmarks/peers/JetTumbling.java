import com.hazelcast.config.Config;
import com.hazelcast.config.JoinConfig;
import com.hazelcast.config.NetworkConfig;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.Job;
import com.hazelcast.jet.aggregate.AggregateOperation;
import com.hazelcast.jet.aggregate.AggregateOperation1;
import com.hazelcast.jet.config.JobConfig;
import com.hazelcast.jet.config.ProcessingGuarantee;
import com.hazelcast.jet.core.JobStatus;
import com.hazelcast.jet.datamodel.KeyedWindowResult;
import com.hazelcast.jet.datamodel.Tuple2;
import com.hazelcast.jet.kafka.KafkaSources;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.Sink;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.WindowDefinition;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Tumbling windows by Hazelcast Jet's pipelines: count and sum of the offset of each key, a job per request. */
public final class JetTumbling {
    private static final int PARALLELISM = 2;
    private static final long LIMIT_NANOS = TimeUnit.MINUTES.toNanos(5);

    public static void main(String[] arguments) throws Exception {
        HazelcastInstance member = Hazelcast.newHazelcastInstance(config());
        Tally.serve(request -> run(member, request));
        member.shutdown();
    }

    /** One member that looks for no others, on the loopback address. */
    private static Config config() {
        Config config = new Config()
                .setProperty("hazelcast.logging.type", "none")
                .setProperty("hazelcast.phone.home.enabled", "false")
                .setProperty("hazelcast.socket.bind.any", "false");
        config.getJetConfig().setEnabled(true).setCooperativeThreadCount(PARALLELISM);
        NetworkConfig network = config.getNetworkConfig();
        network.getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        JoinConfig join = network.getJoin();
        join.getAutoDetectionConfig().setEnabled(false);
        join.getMulticastConfig().setEnabled(false);
        return config;
    }

    private static void run(HazelcastInstance member, Tally.Request request) throws Exception {
        JobConfig config = new JobConfig()
                .setProcessingGuarantee(ProcessingGuarantee.EXACTLY_ONCE)
                .setSnapshotIntervalMillis(1_000);
        Job job = member.getJet().newJob(pipeline(request), config);
        // Its Kafka source has no end. A suspension makes a last snapshot, as the other engines commit their end.
        awaitResults(job);
        job.suspend();
        while (job.getStatus() != JobStatus.SUSPENDED) {
            Thread.sleep(1);
        }
        Tally.ended();
        job.cancel();
    }

    private static void awaitResults(Job job) throws InterruptedException {
        long beganNanos = System.nanoTime();
        while (!Tally.isComplete()) {
            if (job.getFuture().isDone()) {
                job.join(); // throws what failed
            }
            if (System.nanoTime() - beganNanos > LIMIT_NANOS) {
                throw new IllegalStateException("the results lack records after five minutes");
            }
            Thread.sleep(1);
        }
    }

    private static Pipeline pipeline(Tally.Request request) {
        Properties consumer = new Properties();
        consumer.setProperty("bootstrap.servers", request.bootstrap());
        consumer.setProperty("auto.offset.reset", "earliest");
        consumer.setProperty("key.deserializer", StringDeserializer.class.getName());
        consumer.setProperty("value.deserializer", ByteArrayDeserializer.class.getName());
        Pipeline pipeline = Pipeline.create();
        pipeline.readFrom(KafkaSources.kafka(consumer, JetTumbling::keyAndOffset, request.topic()))
                .withNativeTimestamps(request.lagMs())
                .setLocalParallelism(PARALLELISM)
                .groupingKey(Tuple2::f0)
                .window(WindowDefinition.tumbling(request.sizeMs()))
                .aggregate(countAndSum())
                .setLocalParallelism(PARALLELISM)
                .writeTo(counted());
        return pipeline;
    }

    private static Tuple2<String, Long> keyAndOffset(ConsumerRecord<String, byte[]> record) {
        Tally.read(record.offset());
        return Tuple2.tuple2(record.key(), record.offset());
    }

    /** The state of a key and window: its count, and the sum of its offsets. */
    private static AggregateOperation1<Tuple2<String, Long>, long[], long[]> countAndSum() {
        return AggregateOperation.withCreate(() -> new long[2])
                .<Tuple2<String, Long>>andAccumulate((sums, row) -> {
                    sums[0]++;
                    sums[1] += row.f1();
                })
                .andCombine((sums, others) -> {
                    sums[0] += others[0];
                    sums[1] += others[1];
                })
                .andExportFinish(sums -> sums);
    }

    private static Sink<KeyedWindowResult<String, long[]>> counted() {
        return SinkBuilder.sinkBuilder("counted", context -> Boolean.TRUE)
                .<KeyedWindowResult<String, long[]>>receiveFn((unused, row) ->
                        Tally.result(row.key(), row.start(), row.result()[0], row.result()[1]))
                .build();
    }
}
