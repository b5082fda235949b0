import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { requireDisk } from '../io/disk.js';
import { ExitCode, LabError } from '../io/errors.js';
import { serverSide, readWarmUps, warmUpsOf } from '../run/server-side.js';
import { lastWords, linkCommand, start, stop, type Ended } from '../run/link-command.js';
import { readLinkReport } from '../run/link-report.js';
import { OWN_SERVER, type Arm, type ProfileFile } from './plan.js';
import type { Bench, ServedPage } from '../run/run-load.js';
import { portOf } from '../run/server-command.js';
import { warmUpsAtMost } from '../run/warm-up.js';

const LIMIT_SECONDS = 40;

/**
 * Exit codes of `pronghorn link` that the lab passes on; any other failure means that the link does
 * not work on this machine.
 */
const FORWARDED_EXIT_CODES: readonly number[] = [
  ExitCode.Malformed,
  ExitCode.InputMissing,
  ExitCode.NotPermitted,
];

/**
 * Starts each link once with a server and without a client, so that a malformed profile, a missing
 * permission or a port in use is found before anything is measured or written.
 */
export async function preflight(
  bench: Bench,
  profiles: readonly ProfileFile[],
  arms: readonly Arm[],
): Promise<void> {
  const [first] = arms;
  const live = [...bench.pages.values()].some(({ facts }) => facts.live !== undefined);
  if (first === undefined || live) return;
  for (const profile of profiles) await tryLink(bench, profile, first);
  // The profiles are valid by now; only the other algorithms and servers remain to be checked.
  const kind = (arm: Arm): string => `${arm.congestion} ${arm.server} ${portOf(arm)}`;
  const others = arms.filter(
    (arm, at) => arms.findIndex((each) => kind(each) === kind(arm)) === at,
  );
  for (const arm of others.slice(1)) await tryLink(bench, profiles[0] as ProfileFile, arm);
}

async function tryLink(bench: Bench, profile: ProfileFile, arm: Arm): Promise<void> {
  const [page] = [...bench.pages.values()] as [ServedPage, ...ServedPage[]];
  const outputPath = join(bench.scratch, 'preflight.log');
  const reportPath = join(bench.scratch, 'preflight.json');
  const running = start(
    linkCommand({
      ...serverSide({ bench, arm, page, folder: bench.scratch }),
      profilePath: profile.path,
      ...(profile.jitter === false && { jitter: false }),
      seed: 0,
      reportPath,
      near: [process.execPath, '--eval', ''],
    }),
    outputPath,
    bench.machineLock,
  );
  const limitSeconds = LIMIT_SECONDS + warmUpsAtMost(warmUpsOf(bench, arm).length);
  const limit = setTimeout(() => void stop(running), limitSeconds * 1000);
  const ended = await running.ended;
  clearTimeout(limit);
  if (ended.kind === 'exit' && ended.code === 0) {
    bench.warmed.add(arm.server, readWarmUps(bench, arm, readLinkReport(reportPath)) ?? []);
    return;
  }
  requireDisk(readFileSync(outputPath, 'utf8'), dirname(bench.scratch));
  throw failure(ended, profile, arm, readFileSync(outputPath, 'utf8'));
}

/** Number of a failed server's output lines that are shown. */
const MAX_OUTPUT_LINES = 20;

function failure(ended: Ended, profile: ProfileFile, { server }: Arm, output: string): LabError {
  const { word, before } = lastWords(output, MAX_OUTPUT_LINES);
  const reason = ended.kind === 'unstartable' ? ended.reason : word.replace(/^error: /i, '');
  const known =
    ended.kind === 'exit' ? FORWARDED_EXIT_CODES.find((code) => code === ended.code) : undefined;
  return new LabError(
    (known as ExitCode | undefined) ?? ExitCode.Unavailable,
    `the link of profile ${profile.name}${server === OWN_SERVER ? '' : ` with the server ${server}`} did not come up: ${reason}`,
    undefined,
    before.length === 0 ? [] : ['Output before that:', ...before.map((line) => `  ${line}`)],
  );
}
