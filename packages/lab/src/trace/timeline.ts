import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LabError } from '../io/errors.js';
import type { BrowserSide } from '../samples/sample.js';
import { joinConnections } from './connections.js';
import { readNetLog, type NetLogTrace } from './netlog.js';
import { baseRoundTrip, flowsOf, readPackets, type Flow, type Packet } from './packets.js';
import { readServerTrace, shifted, type ServerTrace } from './qlog.js';
import { COMPRESSED } from './read-lines.js';
import { requestsOf, type TimelineRequest } from './requests.js';
import { readTcpInfo, type TcpInfo } from './tcp-info.js';

/** Files of a load's trace folder. Each may be missing. */
export const TraceFile = {
  Browser: 'browser.json',
  Packets: 'packets.csv',
  TcpInfo: 'tcp-info.csv',
  NetLog: 'netlog.json',
  Qlog: 'qlog',
} as const;

/** All known data of one load, in milliseconds since navigation start. */
export interface LoadTimeline {
  readonly browser: BrowserSide;
  /** End of the load event, or the last event of a load without one. */
  readonly end: number;
  readonly requests: readonly TimelineRequest[];
  readonly packets: readonly Packet[];
  /**
   * Packets by connection, including connections that the browser made at its start and never used.
   */
  readonly flows: readonly Flow[];
  readonly baseRoundTripMs?: number;
  readonly tcpInfo: readonly TcpInfo[];
  readonly netLog?: NetLogTrace;
  /** The server's qlog, by the name of its flow. */
  readonly server: ReadonlyMap<string, ServerTrace>;
}

/**
 * Returns navigation start on CLOCK_MONOTONIC in milliseconds: as recorded, or computed from the
 * document, whose request was timed both by the developer tools and by the page's own timeline
 * (they agree to 0.1 ms). Undefined if no document was received.
 */
export function navigationStart({
  navigationStartMonotonicMs,
  navigation,
  requests,
}: BrowserSide): number | undefined {
  if (navigationStartMonotonicMs !== undefined) return navigationStartMonotonicMs;
  if (navigation === undefined || navigation.requestStart <= 0) return undefined;
  const timing = requests.findLast(
    ({ url, timing: each }) => url === navigation.name && each !== undefined,
  )?.timing;
  const { requestTime, sendStart } = timing ?? {};
  if (requestTime === undefined || sendStart === undefined || sendStart < 0) return undefined;
  return requestTime * 1000 + sendStart - navigation.requestStart;
}

/**
 * Reads a load's trace folder. `browser` is the browser's side if the caller already has it.
 * Undefined for a load without a common time axis: the browser reported nothing, or never started
 * to load the document.
 */
export async function readTimeline(
  folder: string,
  browser?: BrowserSide,
): Promise<LoadTimeline | undefined> {
  const side = browser ?? readBrowserSide(join(folder, TraceFile.Browser));
  const zero = side === undefined ? undefined : navigationStart(side);
  if (side === undefined || zero === undefined) return undefined;
  const at = (name: string): string | undefined =>
    [name, `${name}${COMPRESSED}`]
      .map((each) => join(folder, each))
      .find((path) => existsSync(path));
  const [packetFile, infoFile, logFile] = [
    at(TraceFile.Packets),
    at(TraceFile.TcpInfo),
    at(TraceFile.NetLog),
  ];
  const packets = packetFile === undefined ? [] : await readPackets(packetFile, zero);
  const tcpInfo = infoFile === undefined ? [] : await readTcpInfo(infoFile, zero);
  const netLog = logFile === undefined ? undefined : await readNetLog(logFile, zero);
  const flows = flowsOf(packets);
  const server = await readServer(at(TraceFile.Qlog), flows, netLog);
  return timelineOf({
    browser: side,
    zero,
    packets,
    flows,
    tcpInfo,
    server,
    ...(netLog !== undefined && { netLog }),
  });
}

/**
 * Like `readTimeline`, but tolerates a malformed trace: it costs the load its labels and its
 * drawing, not the campaign the load.
 */
export async function timelineIfReadable(
  folder: string,
  browser: BrowserSide,
): Promise<LoadTimeline | undefined> {
  try {
    return await readTimeline(folder, browser);
  } catch (thrown) {
    if (!(thrown instanceof LabError)) throw thrown;
    process.stderr.write(`warning: no timeline and no labels: ${thrown.message}\n`);
    return undefined;
  }
}

/** The parts of a timeline. */
export interface TimelineParts {
  readonly browser: BrowserSide;
  /** Navigation start on CLOCK_MONOTONIC. */
  readonly zero: number;
  readonly packets: readonly Packet[];
  readonly flows: readonly Flow[];
  readonly tcpInfo: readonly TcpInfo[];
  readonly netLog?: NetLogTrace;
  readonly server: ReadonlyMap<string, ServerTrace>;
}

/** Combines the parts: joins requests with the connections that carried them. */
export function timelineOf({ browser, zero, ...parts }: TimelineParts): LoadTimeline {
  const { packets, flows, netLog } = parts;
  const requests = joinConnections(requestsOf(browser, zero), flows, netLog);
  const loadEnd = browser.navigation?.loadEventEnd ?? 0;
  const seen = requests.flatMap(({ end, responseStart, start }) => end ?? responseStart ?? start);
  const baseRoundTripMs = baseRoundTrip(packets);
  return {
    browser,
    end: loadEnd > 0 ? loadEnd : Math.max(0, ...seen, packets.at(-1)?.arrived ?? 0),
    requests,
    ...parts,
    ...(baseRoundTripMs !== undefined && { baseRoundTripMs }),
  };
}

function readBrowserSide(path: string): BrowserSide | undefined {
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as BrowserSide) : undefined;
}

/**
 * Reads the server's trace. A connection begins at the server when the client's first datagram
 * arrives.
 */
async function readServer(
  folder: string | undefined,
  flows: readonly Flow[],
  netLog: NetLogTrace | undefined,
): Promise<ReadonlyMap<string, ServerTrace>> {
  const traces = new Map<string, ServerTrace>();
  if (folder === undefined) return traces;
  const quic = flows.filter(({ protocol }) => protocol === 'udp');
  for (const file of readdirSync(folder).filter((name) => name.endsWith('_server.sqlog'))) {
    const trace = await readServerTrace(join(folder, file));
    const known = netLog?.connections.find(
      (each) => each.quic?.firstConnectionId === trace.connectionId,
    );
    // Without the browser's report the connection can be identified only if it is the only one.
    const flow =
      quic.length === 1 ? quic[0] : quic.find(({ nearPort }) => nearPort === known?.nearPort);
    const start = flow?.packets.find(({ way, left }) => way === 'up' && left !== undefined)?.left;
    if (flow !== undefined && start !== undefined) traces.set(flow.name, shifted(trace, start));
  }
  return traces;
}
