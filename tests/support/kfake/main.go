// A server of franz-go's kfake, a second implementation of Kafka's protocol, for tests: prints its addresses and serves
// until its standard input ends, so that it never outlives who started it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

func options() ([]kfake.Opt, error) {
	brokers := flag.Int("brokers", 1, "how many brokers, each on a port of its own")
	version := flag.String("version", "", "answer as this version of Kafka would, as v2.8; the newest that is known if empty")
	sasl := flag.String("sasl", "", "MECHANISM:USER:PASSWORD of the one who may log in; no login if empty")
	flag.Parse()
	opts := []kfake.Opt{
		kfake.NumBrokers(*brokers),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	}
	if *version != "" {
		known := kversion.FromString(*version)
		if known == nil {
			return nil, fmt.Errorf("no version of Kafka is named %q", *version)
		}
		opts = append(opts, kfake.MaxVersions(known))
	}
	if *sasl != "" {
		parts := strings.SplitN(*sasl, ":", 3)
		if len(parts) != 3 {
			return nil, fmt.Errorf("-sasl is MECHANISM:USER:PASSWORD")
		}
		opts = append(opts, kfake.EnableSASL(), kfake.Superuser(parts[0], parts[1], parts[2]))
	}
	return opts, nil
}

func main() {
	opts, err := options()
	if err == nil {
		var cluster *kfake.Cluster
		if cluster, err = kfake.NewCluster(opts...); err == nil {
			defer cluster.Close()
			fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
			_, _ = io.Copy(io.Discard, os.Stdin)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
