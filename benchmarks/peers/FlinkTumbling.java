import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** Tumbling windows by Flink's DataStream: count and sum of the offset of each key, a job per request. */
public final class FlinkTumbling {
    private static final int PARALLELISM = 2;

    public static void main(String[] arguments) throws Exception {
        MiniClusterConfiguration size = new MiniClusterConfiguration.Builder()
                .setConfiguration(new Configuration())
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(PARALLELISM)
                .build();
        try (MiniCluster cluster = new MiniCluster(size)) {
            cluster.start();
            Tally.serve(request -> run(cluster, request));
        }
    }

    private static void run(MiniCluster cluster, Tally.Request request) throws Exception {
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, settings(request));
        KafkaSource<Tuple2<String, Long>> source = KafkaSource.<Tuple2<String, Long>>builder()
                .setBootstrapServers(request.bootstrap())
                .setTopics(request.topic())
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new KeyAndOffset())
                .build();
        job.fromSource(
                        source,
                        WatermarkStrategy.forBoundedOutOfOrderness(Duration.ofMillis(request.lagMs())),
                        "records")
                .keyBy(row -> row.f0, Types.STRING)
                .window(TumblingEventTimeWindows.of(Duration.ofMillis(request.sizeMs())))
                .aggregate(new CountAndSum(), new WithWindow())
                .sinkTo(new Counted());
        cluster.executeJobBlocking(job.getStreamGraph().getJobGraph());
        Tally.ended();
    }

    private static Configuration settings(Tally.Request request) {
        return new Configuration()
                .set(StateBackendOptions.STATE_BACKEND, "hashmap")
                .set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem")
                .set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + request.directory())
                .set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofSeconds(1))
                .set(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE, CheckpointingMode.EXACTLY_ONCE)
                .set(RestartStrategyOptions.RESTART_STRATEGY, "none")
                .set(PipelineOptions.OBJECT_REUSE, true);
    }

    /** Key and offset of each record; the connector itself adds the record's timestamp. */
    private static final class KeyAndOffset implements KafkaRecordDeserializationSchema<Tuple2<String, Long>> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<String, Long>> out) {
            Tally.read(record.offset());
            out.collect(Tuple2.of(new String(record.key(), StandardCharsets.UTF_8), record.offset()));
        }

        @Override
        public TypeInformation<Tuple2<String, Long>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.LONG);
        }
    }

    /** The state of a key and window: its count, and the sum of its offsets. */
    private static final class CountAndSum implements AggregateFunction<Tuple2<String, Long>, long[], long[]> {
        @Override
        public long[] createAccumulator() {
            return new long[2];
        }

        @Override
        public long[] add(Tuple2<String, Long> row, long[] sums) {
            sums[0]++;
            sums[1] += row.f1;
            return sums;
        }

        @Override
        public long[] getResult(long[] sums) {
            return sums;
        }

        @Override
        public long[] merge(long[] one, long[] other) {
            return new long[] {one[0] + other[0], one[1] + other[1]};
        }
    }

    /** Key, start of the window, count, sum. */
    private static final class WithWindow
            implements WindowFunction<long[], Tuple4<String, Long, Long, Long>, String, TimeWindow> {
        @Override
        public void apply(
                String key, TimeWindow window, Iterable<long[]> sums, Collector<Tuple4<String, Long, Long, Long>> out) {
            for (long[] one : sums) {
                out.collect(Tuple4.of(key, window.getStart(), one[0], one[1]));
            }
        }
    }

    private static final class Counted implements Sink<Tuple4<String, Long, Long, Long>> {
        @Override
        public SinkWriter<Tuple4<String, Long, Long, Long>> createWriter(WriterInitContext context) {
            return new SinkWriter<>() {
                @Override
                public void write(Tuple4<String, Long, Long, Long> row, Context context) {
                    Tally.result(row.f0, row.f1, row.f2, row.f3);
                }

                @Override
                public void flush(boolean endOfInput) throws IOException {}

                @Override
                public void close() {}
            };
        }
    }
}
