// The scenarios of tests/e2e/test_ecosystem.py for Node.js clients.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";

const MIB = 1 << 20;
const CANCELLED = 4;
const BYSTANDERS = 3;

/** Reads a response `{ status, protocol, content }` to its end, where content is an async iterable. */
async function finish(answer, onPiece) {
  const hash = createHash("sha256");
  let size = 0;
  let text = "";
  for await (const piece of answer.content) {
    hash.update(piece);
    size += piece.length;
    if (size < 1000) text += Buffer.from(piece).toString("latin1");
    await onPiece?.(size);
  }
  const protocol = answer.protocol();
  return { status: answer.status, protocol, bytes: size, sha256: hash.digest("hex"), text };
}

/** Content without a known length. */
async function* pieces(content) {
  for (let start = 0; start < content.length; start += 65536) yield content.subarray(start, start + 65536);
}

const scenarios = {
  async small({ get }) {
    return [await finish(await get("/small.txt")), await finish(await get("/small.txt"))];
  },

  async download({ get }) {
    return [await finish(await get("/large.bin"))];
  },

  async upload({ post, content }) {
    return [await finish(await post("/upload", content))];
  },

  async stream({ post, content }) {
    return [await finish(await post("/upload", pieces(content)))];
  },

  async refused({ get, post, content }) {
    const refusal = await finish(await post("/forbidden", pieces(content)));
    return [refusal, await finish(await get("/small.txt"))];
  },

  // The bystanders read slowly until the other downloads are cancelled, so that they are still in progress.
  async cancel({ get }) {
    // A connection that all can share.
    const first = await finish(await get("/small.txt"));
    let cancelled = false;
    const bystander = async (started) => {
      const answer = await get("/large.bin");
      let pausedAt = -1;
      return finish(answer, async (size) => {
        if (pausedAt < 0) started();
        const at = Math.floor(size / MIB);
        if (!cancelled && at > pausedAt) {
          pausedAt = at;
          await sleep(10);
        }
      });
    };
    const cancelOne = async () => {
      const answer = await get("/large.bin");
      // Leaving the loop destroys the stream.
      for await (const _ of answer.content) break;
      answer.cancel?.();
    };
    const bystanders = [];
    await Promise.all(
      Array.from({ length: BYSTANDERS }, () => {
        return new Promise((started, failed) => {
          const running = bystander(started);
          running.catch(failed);
          bystanders.push(running);
        });
      }),
    );
    await Promise.all(Array.from({ length: CANCELLED }, cancelOne));
    cancelled = true;
    return [first, ...(await Promise.all(bystanders)), await finish(await get("/small.txt"))];
  },

  async idle({ get, seconds }) {
    const first = await finish(await get("/small.txt"));
    await sleep(1000 * seconds);
    return [first, await finish(await get("/small.txt"))];
  },

  // Reads the first bytes, reports it, and continues when told to.
  async shutdown({ get }) {
    let told = false;
    return [
      await finish(await get("/large.bin"), async () => {
        if (told) return;
        told = true;
        process.stdout.write("reading\n");
        await once(process.stdin, "data");
      }),
    ];
  },
};

/** Runs the scenario of the command line. `connect({ protocol, ca })` returns `request(method, url, content)`. */
export async function main(connect) {
  const [protocol, scenario, origin, ca, file, tag] = process.argv.slice(2);
  const request = await connect({ protocol, ca: readFileSync(ca) });
  const url = (path) => `${origin}${path}?${tag}`;
  // `idle-31` rests for 31 seconds.
  const [name, seconds] = scenario.split("-");
  const answers = await scenarios[name]({
    seconds: Number(seconds),
    get: (path) => request("GET", url(path)),
    post: (path, content) => request("POST", url(path), content),
    content: readFileSync(file),
  });
  process.stdout.write(`${JSON.stringify({ answers })}\n`);
  process.exit(0);
}
