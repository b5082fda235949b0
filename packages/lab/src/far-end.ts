import { FAR_ADDRESS, type Link } from './link-command.js';
import type { Arm, ServerSpec } from './plan.js';
import type { Bench, ServedPage } from './run-load.js';
import { patienceFor, portOf, serverCommand } from './server-command.js';
import { hostsOf, siteOf } from './site.js';
import type { LinkReading } from './link-report.js';
import { WARM_UP_SECONDS, warmUpCommands, warmUpProtocols, type WarmProtocol, type WarmUp } from './warm-up.js';

interface FarEnd {
  readonly bench: Bench;
  readonly arm: Arm;
  readonly page: ServedPage;
  /** Of the load, where its server may write. */
  readonly folder: string;
  readonly qlogFolder?: string;
}

/** What an arm decides of a link's command: the server, what it has done before, and TCP. */
export function farEnd({
  bench,
  arm,
  page,
  folder,
  qlogFolder,
}: FarEnd): Pick<
  Link,
  'pronghorn' | 'congestion' | 'initialWindow' | 'slowStartAfterIdle' | 'far' | 'farPort' | 'farSeconds' | 'warmUps'
> {
  const { pronghorn, certificate, timeoutSeconds } = bench;
  const { facts } = page;
  const reference = bench.references.get(arm.server);
  const spec = bench.servers.get(arm.server) as ServerSpec;
  const [host = ''] = hostsOf(siteOf(facts, arm));
  return {
    pronghorn,
    congestion: arm.congestion,
    ...(arm.initialWindow !== undefined && { initialWindow: arm.initialWindow }),
    slowStartAfterIdle: arm.slowStartAfterIdle === true,
    far: serverCommand({
      pronghorn,
      spec,
      ...(reference !== undefined && { reference }),
      arm,
      pageFolder: page.folder,
      isRecording: facts.recording !== undefined,
      thinkTimes: page.thinkTimes,
      address: FAR_ADDRESS,
      certificate,
      patienceSeconds: patienceFor(timeoutSeconds),
      folder,
      ...(qlogFolder !== undefined && { qlogFolder }),
    }),
    farPort: portOf(arm),
    farSeconds: WARM_UP_SECONDS,
    warmUps: warmUpCommands(pronghorn, spec, warmUpsOf(bench, arm), host, bench.warmed),
  };
}

/** What an arm's server is warmed over. */
export function warmUpsOf({ servers, references, arms }: Bench, arm: Arm): WarmProtocol[] {
  return warmUpProtocols(servers.get(arm.server) as ServerSpec, arms, references.get(arm.server), arm);
}

/** The connections that the server had before the browser's; undefined if the link wrote no report of them. */
export function readWarmUps(bench: Bench, arm: Arm, link: LinkReading): WarmUp[] | undefined {
  const codes = link.kind === 'report' ? link.report.warm_up_exit_codes : undefined;
  return codes && warmUpsOf(bench, arm).map((protocol, at) => ({ protocol, ok: codes[at] === 0 }));
}
