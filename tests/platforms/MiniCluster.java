import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS with one DataNode and YARN with several NodeManagers in one process: MiniCluster FOLDER NODES [NAME=VALUE...].
 *
 * It writes the configuration to FOLDER/conf, then the address of HDFS and the line "ready". A line "stop NUMBER" stops a NodeManager with its
 * containers; the end of the input ends everything.
 */
public class MiniCluster {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]).toAbsolutePath();
        System.setProperty("test.build.data", folder.resolve("data").toString());
        Configuration conf = new YarnConfiguration();
        for (int at = 2; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            conf.set(setting[0], setting[1]);
        }
        MiniDFSCluster dfs = new MiniDFSCluster.Builder(conf, folder.resolve("dfs").toFile()).numDataNodes(1).build();
        dfs.waitClusterUp();
        conf.set("fs.defaultFS", dfs.getFileSystem().getUri().toString());
        MiniYARNCluster yarn = new MiniYARNCluster("yarn", Integer.parseInt(args[1]), 1, 1);
        yarn.init(conf);
        yarn.start();
        Configuration shown = new Configuration(yarn.getConfig());
        shown.unset("net.topology.node.switch.mapping.impl"); // a class of Hadoop's tests, which Spark lacks
        Path directory = Files.createDirectories(folder.resolve("conf"));
        // In each of the three: the defaults of HDFS and YARN would replace what stands in core-site.xml alone.
        for (String name : new String[] {"core-site.xml", "hdfs-site.xml", "yarn-site.xml"}) {
            try (Writer out = Files.newBufferedWriter(directory.resolve(name))) {
                shown.writeXml(out);
            }
        }
        System.out.println(conf.get("fs.defaultFS"));
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            yarn.getNodeManager(Integer.parseInt(line.split(" ")[1])).stop();
            System.out.println("stopped");
        }
        yarn.stop();
        dfs.shutdown();
        System.exit(0);
    }
}
