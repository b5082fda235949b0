// Got, whose HTTP/2 is that of Node.js through http2-wrapper.
import { Agent } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { once } from "node:events";
import got from "got";
import { main } from "./scenarios.mjs";

main(({ protocol, ca }) => {
  const http2 = protocol === "2";
  // Keeps connections, as over HTTP/2.
  const agent = http2 ? undefined : { https: new Agent({ keepAlive: true }) };
  const client = got.extend({ http2, agent, https: { certificateAuthority: ca }, retry: { limit: 0 }, throwHttpErrors: false });
  return async (method, url, content) => {
    const request = client.stream(url, { method, ...(Buffer.isBuffer(content) && { body: content }) });
    if (content && !Buffer.isBuffer(content)) {
      // The rest of a rejected upload is not sent.
      pipeline(Readable.from(content), request, { end: true }).catch(() => {});
    }
    const [response] = await once(request, "response");
    return {
      status: response.statusCode,
      protocol: () => `HTTP/${response.httpVersion}`,
      content: request,
    };
  };
});
