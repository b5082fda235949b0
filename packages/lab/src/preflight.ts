import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { requireDisk } from './disk.js';
import { ExitCode, LabError } from './errors.js';
import { farEnd, readWarmUps, warmUpsOf } from './far-end.js';
import { lastWords, linkCommand, start, stop, type Ended } from './link-command.js';
import { readLinkReport } from './link-report.js';
import { OWN_SERVER, type Arm, type ProfileFile } from './plan.js';
import type { Bench, ServedPage } from './run-load.js';
import { portOf } from './server-command.js';
import { warmUpsAtMost } from './warm-up.js';

const LIMIT_SECONDS = 40;

/** The exit codes of `pronghorn link` that the lab hands on; any other end is a link that does not work here. */
const HANDED_ON: readonly number[] = [ExitCode.Malformed, ExitCode.InputMissing, ExitCode.NotPermitted];

/**
 * Brings each link up once with the server in front and nothing behind, so that a profile that is malformed, a right
 * that is missing or a port that is taken is found before anything is measured or written.
 */
export async function preflight(bench: Bench, profiles: readonly ProfileFile[], arms: readonly Arm[]): Promise<void> {
  const [first] = arms;
  const live = [...bench.pages.values()].some(({ facts }) => facts.live !== undefined);
  if (first === undefined || live) return;
  for (const profile of profiles) await tryLink(bench, profile, first);
  // The profiles are known to be good by now; what is left is whether each other algorithm and server can be had.
  const kind = (arm: Arm): string => `${arm.congestion} ${arm.server} ${portOf(arm)}`;
  const others = arms.filter((arm, at) => arms.findIndex((each) => kind(each) === kind(arm)) === at);
  for (const arm of others.slice(1)) await tryLink(bench, profiles[0] as ProfileFile, arm);
}

async function tryLink(bench: Bench, profile: ProfileFile, arm: Arm): Promise<void> {
  const [page] = [...bench.pages.values()] as [ServedPage, ...ServedPage[]];
  const outputPath = join(bench.scratch, 'preflight.log');
  const reportPath = join(bench.scratch, 'preflight.json');
  const running = start(
    linkCommand({
      ...farEnd({ bench, arm, page, folder: bench.scratch }),
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

/** So many lines of a server that does not come up are shown. */
const SHOWN_LINES = 20;

function failure(ended: Ended, profile: ProfileFile, { server }: Arm, output: string): LabError {
  const { word, before } = lastWords(output, SHOWN_LINES);
  const reason = ended.kind === 'unstartable' ? ended.reason : word.replace(/^error: /i, '');
  const known = ended.kind === 'exit' ? HANDED_ON.find((code) => code === ended.code) : undefined;
  return new LabError(
    (known as ExitCode | undefined) ?? ExitCode.Unavailable,
    `the link of profile ${profile.name}${server === OWN_SERVER ? '' : ` with the server ${server}`} did not come up: ${reason}`,
    undefined,
    before.length === 0 ? [] : ['What was printed before that:', ...before.map((line) => `  ${line}`)],
  );
}
