import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { decode, encode, type Answer, type Packet } from 'dns-packet';
import { hostsOf } from '../run/site.js';
import type { LoadJob } from './job.js';

const DNS_PORT = 53;
/** RFC 9460. */
const HTTPS_TYPE = 65;
const SECONDS_TO_LIVE = 300;
const NO_SUCH_NAME = 3;
const AUTHORITATIVE = 1 << 10;

/**
 * The value of the record `1 . alpn="h3,h2"` (RFC 9460, section 2.2): priority 1, the owner's own
 * name as the target, and the parameter `alpn` (key 1) with its list of length-prefixed names.
 */
const HTTPS_RECORD = Buffer.from([0, 1, 0, 0, 1, 0, 6, 2, 0x68, 0x33, 2, 0x68, 0x32]);

/**
 * A DNS server for the page's hosts, with their address and a record that announces HTTP/3. It
 * answers at the browser's end of the link, like a home resolver that has the answer cached.
 */
export class NameServer {
  readonly #socket: Socket;
  #httpsQueries = 0;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  static async start({
    resolverAddress,
    origins,
    serverAddress,
  }: LoadJob & {
    readonly resolverAddress: string;
    readonly serverAddress: string;
  }): Promise<NameServer> {
    const hosts = new Set(hostsOf({ origins }));
    const socket = createSocket('udp4');
    const server = new NameServer(socket);
    socket.on('message', (message, from) => {
      const answer = server.#answer(message, hosts, serverAddress);
      if (answer !== undefined) socket.send(answer, from.port, from.address);
    });
    socket.bind(DNS_PORT, resolverAddress);
    await once(socket, 'listening');
    return server;
  }

  /** Number of a browser's queries for the HTTPS record of a host. */
  get httpsQueries(): number {
    return this.#httpsQueries;
  }

  async stop(): Promise<void> {
    this.#socket.close();
    await once(this.#socket, 'close');
  }

  #answer(message: Buffer, hosts: ReadonlySet<string>, address: string): Buffer | undefined {
    const query = decoded(message);
    const question = query?.questions?.[0];
    if (query === undefined || question === undefined) return undefined;
    const known = hosts.has(question.name.toLowerCase());
    const answers = known ? this.#records(question.name, typeOf(question.type), address) : [];
    return encode({
      type: 'response',
      ...(query.id !== undefined && { id: query.id }),
      flags: AUTHORITATIVE | (known ? 0 : NO_SUCH_NAME),
      questions: [question],
      answers,
    });
  }

  /** Returns no records for a type that the host does not have, which is a valid answer. */
  #records(name: string, type: number, address: string): Answer[] {
    switch (type) {
      case A:
        return [{ type: 'A', name, ttl: SECONDS_TO_LIVE, data: address }];
      case HTTPS_TYPE:
        this.#httpsQueries += 1;
        // The library knows the type by its number only.
        return [
          {
            type: `UNKNOWN_${HTTPS_TYPE}`,
            name,
            ttl: SECONDS_TO_LIVE,
            data: HTTPS_RECORD,
          } as unknown as Answer,
        ];
      default:
        return [];
    }
  }
}

const A = 1;

function typeOf(name: string): number {
  return name === 'A' ? A : Number(/^UNKNOWN_(\d+)$/.exec(name)?.[1] ?? 0);
}

function decoded(message: Buffer): Packet | undefined {
  try {
    return decode(message);
  } catch {
    return undefined;
  }
}
