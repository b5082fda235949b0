// Bun's own server with HTTP/3, serving from memory. usage: bun bun.js PORT CERTIFICATE KEY FOLDER
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const [port, cert, key, folder] = process.argv.slice(2);
const files = new Map(readdirSync(folder).map((name) => [`/${name}`, readFileSync(join(folder, name))]));

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(port),
  tls: { cert: Bun.file(cert), key: Bun.file(key) },
  http3: true,
  fetch(request) {
    const path = new URL(request.url).pathname;
    const content = files.get(path);
    if (content === undefined) return new Response(null, { status: 404 });
    const type = path.endsWith(".txt") ? "text/plain" : "application/octet-stream";
    return new Response(content, { headers: { "content-type": type, server: "bench" } });
  },
});
