// Command rpc-go is the service of tests/e2e/test_rpc_clients.py, and its clients in Go.
//
// usage: rpc-go serve grpc|connect
//
//	rpc-go CLIENT SCENARIO ORIGIN CA
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "serve":
		return serve(arguments[1])
	case len(arguments) == 4:
		client, err := connectTo(arguments[0], arguments[2], arguments[3])
		if err != nil {
			return err
		}
		calls, err := runScenario(client, arguments[1])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"calls": calls})
	}
	return fmt.Errorf("usage: rpc-go serve grpc|connect, or rpc-go CLIENT SCENARIO ORIGIN CA")
}
