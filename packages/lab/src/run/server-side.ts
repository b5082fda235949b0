import { FAR_ADDRESS, type Link } from './link-command.js';
import type { Arm, ServerSpec } from '../campaign/plan.js';
import type { Bench, ServedPage } from './run-load.js';
import { serverTimeout, portOf, serverCommand } from './server-command.js';
import { hostsOf, siteOf } from './site.js';
import type { LinkReading } from './link-report.js';
import {
  WARM_UP_SECONDS,
  warmUpCommands,
  warmUpProtocols,
  type WarmProtocol,
  type WarmUp,
} from './warm-up.js';

interface ServerSide {
  readonly bench: Bench;
  readonly arm: Arm;
  readonly page: ServedPage;
  /** The load's folder, in which its server may write. */
  readonly folder: string;
  readonly qlogFolder?: string;
}

/** Returns the arm's part of a link's command: the server, its warm-ups, and TCP settings. */
export function serverSide({
  bench,
  arm,
  page,
  folder,
  qlogFolder,
}: ServerSide): Pick<
  Link,
  | 'pronghorn'
  | 'congestion'
  | 'initialWindow'
  | 'slowStartAfterIdle'
  | 'far'
  | 'farPort'
  | 'farSeconds'
  | 'warmUps'
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
      serverTimeoutSeconds: serverTimeout(timeoutSeconds),
      folder,
      ...(qlogFolder !== undefined && { qlogFolder }),
    }),
    farPort: portOf(arm),
    farSeconds: WARM_UP_SECONDS,
    warmUps: warmUpCommands(pronghorn, spec, warmUpsOf(bench, arm), host, bench.warmed),
  };
}

/** Returns the protocols over which an arm's server is warmed. */
export function warmUpsOf({ servers, references, arms }: Bench, arm: Arm): WarmProtocol[] {
  return warmUpProtocols(
    servers.get(arm.server) as ServerSpec,
    arms,
    references.get(arm.server),
    arm,
  );
}

/**
 * Returns the server's connections before the browser's; undefined if the link wrote no report of
 * them.
 */
export function readWarmUps(bench: Bench, arm: Arm, link: LinkReading): WarmUp[] | undefined {
  const codes = link.kind === 'report' ? link.report.warm_up_exit_codes : undefined;
  return codes && warmUpsOf(bench, arm).map((protocol, at) => ({ protocol, ok: codes[at] === 0 }));
}
