import { harFromMessages } from 'chrome-har';
import type { Exchange } from './exchange.js';
import type { Message } from './recorder.js';
import { isSecret } from './secrets.js';

interface NameValue {
  name: string;
  value: string;
}

/** The parts of HAR 1.2 that contain secrets, sizes or times. */
interface HarEntry {
  time: number;
  timings: Record<string, number>;
  request: {
    method: string;
    url: string;
    headers: NameValue[];
    cookies: unknown[];
    postData?: { text?: string; params?: unknown[] };
  };
  response?: { headers: NameValue[]; cookies: unknown[]; content: { size: number } };
}

/** Returns a load as HAR 1.2 text without bodies, which are in the recording beside it. */
export function harOf(
  messages: readonly Message[],
  exchanges: readonly Exchange[],
  keepCookies: boolean,
): string {
  const har = harFromMessages([...messages]) as { log: { entries: HarEntry[] } };
  const known = new Map(
    exchanges.map((exchange) => [`${exchange.method} ${exchange.url}`, exchange]),
  );
  for (const entry of har.log.entries) {
    const { request, response } = entry;
    const exchange = known.get(`${request.method} ${request.url}`);
    if (response !== undefined) response.content.size = exchange?.body?.length ?? 0;
    if (!Object.values(entry.timings).every(Number.isFinite))
      Object.assign(entry, wholeTime(exchange));
    if (keepCookies) continue;
    for (const side of [request, response ?? request]) {
      side.cookies = [];
      side.headers = side.headers.filter(({ name }) => !isSecret(name));
    }
    // A form may contain a password.
    if (request.postData !== undefined) Object.assign(request.postData, { text: '', params: [] });
  }
  return `${JSON.stringify(har, undefined, 1)}\n`;
}

/**
 * Attributes the whole time to waiting, if Chromium reports no timing, as for a worker's script.
 */
function wholeTime(exchange: Exchange | undefined): Pick<HarEntry, 'time' | 'timings'> {
  const time = 1000 * ((exchange?.endSeconds ?? 0) - (exchange?.startSeconds ?? 0));
  return {
    time,
    timings: { blocked: -1, dns: -1, connect: -1, ssl: -1, send: 0, wait: time, receive: 0 },
  };
}
