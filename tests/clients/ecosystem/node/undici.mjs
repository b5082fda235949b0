// undici, Node.js's fetch.
import { Agent, fetch } from "undici";
import diagnostics from "node:diagnostics_channel";
import { main } from "./scenarios.mjs";

// A fetch response does not report its protocol, so it is taken from the configured connections.
let negotiated;
diagnostics.channel("undici:client:connected").subscribe(({ socket }) => {
  negotiated = socket.alpnProtocol;
});

main(({ protocol, ca }) => {
  const dispatcher = new Agent({ allowH2: protocol === "2", connect: { ca } });
  return async (method, url, content) => {
    const response = await fetch(url, { method, body: content, duplex: "half", dispatcher });
    return {
      status: response.status,
      protocol: () => (negotiated === "h2" ? "HTTP/2" : "HTTP/1.1"),
      content: response.body,
    };
  };
});
