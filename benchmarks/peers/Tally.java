import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.LongAdder;

/**
 * What the programs share: a run per line of the standard input, how far a run has read, and the sums of its results.
 *
 * All of an engine is in this JVM, so its functions reach the sums without a way out of the engine.
 */
final class Tally {
    /** A run: what it reads, its windows, and where it may write. Windows from `untilMs` on are not results. */
    record Request(
            String bootstrap, String topic, long records, long sizeMs, long lagMs, long untilMs, String directory) {
        static Request of(String line) {
            String[] words = line.split(" ");
            return new Request(
                    words[0], words[1], Long.parseLong(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]),
                    Long.parseLong(words[5]), words[6]);
        }
    }

    /** Runs a job to its end, at which it calls `ended`. */
    interface Job {
        void run(Request request) throws Exception;
    }

    // The checksum is that of benchmarks/windows_answer.py.
    private static final long KEY_FACTOR = 1_000_003, TIME_FACTOR = 7_919, COUNT_FACTOR = 31;
    private static final long PLACES = 1_000_033, PRIME = 1_000_000_007;
    private static final long STEP = 1_024;
    private static final LongAdder RESULTS = new LongAdder(), ROWS = new LongAdder(), OFFSETS = new LongAdder();
    private static final LongAdder CHECKSUM = new LongAdder();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static Request request;
    private static long read, steadyRead, steadyNanos, lastNanos, beganNanos, beganCpuNanos, tookNanos, cpuNanos;

    private Tally() {}

    /** Runs a job for each line, and prints a line of JSON for each. */
    static void serve(Job job) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            begin(Request.of(line));
            try {
                job.run(request);
            } catch (Exception failure) {
                failure.printStackTrace();
                System.exit(1); // threads of the engine would keep this JVM alive
            }
            System.out.println(answer());
            System.gc(); // the next side runs without this heap's garbage
        }
    }

    private static synchronized void begin(Request next) {
        request = next;
        read = steadyRead = steadyNanos = lastNanos = tookNanos = cpuNanos = 0;
        for (LongAdder sum : new LongAdder[] {RESULTS, ROWS, OFFSETS, CHECKSUM}) {
            sum.reset();
        }
        beganCpuNanos = SYSTEM.getProcessCpuTime();
        beganNanos = System.nanoTime();
    }

    /** Notes a record that a task has read. Offsets of a partition are without gaps, so they count its records. */
    static void read(long offset) {
        if (offset % STEP == STEP - 1) {
            readStep();
        }
    }

    private static synchronized void readStep() {
        read += STEP;
        lastNanos = System.nanoTime();
        if (steadyRead == 0 && read * 5 >= request.records()) {
            steadyRead = read;
            steadyNanos = lastNanos;
        }
    }

    /** Notes the result of a key and window. */
    static void result(String key, long startMs, long count, long total) {
        if (startMs >= request.untilMs()) {
            return;
        }
        long place = Math.floorMod(Long.parseLong(key) * KEY_FACTOR + startMs * TIME_FACTOR, PLACES);
        CHECKSUM.add(Math.floorMod(place * (1 + count * COUNT_FACTOR + total), PRIME));
        RESULTS.increment();
        OFFSETS.add(total);
        ROWS.add(count);
    }

    /** Whether the results have all records. */
    static boolean isComplete() {
        return ROWS.sum() >= request.records();
    }

    /** Notes the end of the run: its time and the CPU time of this process. */
    static synchronized void ended() {
        tookNanos = System.nanoTime() - beganNanos;
        cpuNanos = SYSTEM.getProcessCpuTime() - beganCpuNanos;
    }

    private static synchronized String answer() {
        return String.format(
                "{\"results\": %d, \"rows\": %d, \"offsets\": %d, \"checksum\": %d, \"took_s\": %s, \"cpu_s\": %s,"
                        + " \"steady_records\": %d, \"steady_s\": %s}",
                RESULTS.sum(), ROWS.sum(), OFFSETS.sum(), CHECKSUM.sum(), tookNanos / 1e9, cpuNanos / 1e9,
                read - steadyRead, (lastNanos - steadyNanos) / 1e9);
    }
}
