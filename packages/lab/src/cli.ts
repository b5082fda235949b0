#!/usr/bin/env node
import { join } from 'node:path';
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { z } from 'zod';
import { readCampaign } from './campaign-file.js';
import { runCampaign } from './campaign.js';
import { capture } from './capture/capture.js';
import { CAPTURE_OPTIONS, captureRequest } from './capture/options.js';
import { isRecording } from './capture/recording.js';
import { pooledControl } from './compare/control.js';
import { controlInWords } from './compare/words.js';
import { runConformance } from './conformance/command.js';
import { LEAST_SECONDS } from './conformance/run.js';
import { ownVersion } from './environment.js';
import { ExitCode, LabError, messageOf } from './errors.js';
import { harOf } from './har.js';
import { writePage } from './page/folder.js';
import { generatePage } from './page/generate.js';
import { readPageSpec } from './page/spec.js';
import { CONGESTION_CONTROLS, type Congestion } from './plan.js';
import { findPronghorn } from './programs.js';
import { readPlan } from './read-plan.js';
import { REPORT, writeReports } from './report/write.js';
import { findStudy, runStudy } from './reproduce/command.js';
import { hasCriteria } from './reproduce/criteria-file.js';
import { STUDIES } from './reproduce/studies/all.js';
import { REPRODUCTION, writeReproduction } from './reproduce/write.js';
import { comparedCell, type Results } from './results.js';
import { readSamples, SAMPLES } from './samples-file.js';
import { freshSeed, MAX_SEED } from './seed.js';
import { judge } from './thresholds/judge.js';
import { parseThreshold, requireNamed, type Threshold } from './thresholds/parse.js';
import { suggestion } from './toml-file.js';

const HELP = `pronghorn-lab ${ownVersion()}: loads a page in Chromium over HTTP/2 and HTTP/3 through an emulated link.

usage:
  pronghorn-lab run PLAN.toml [--out DIR] [--resume] [--seed N] [--pronghorn PATH] [--chromium PATH] [--watch-all]
                     [--fail-if CONDITION]...
  pronghorn-lab page SPEC.toml --out DIR
  pronghorn-lab capture URL --out DIR [--wait-ms N] [--timeout SECONDS] [--resolve HOST=ADDR[:PORT]]... [--spki HASH]
                        [--insecure-certificate] [--keep-cookies] [--chromium PATH]
  pronghorn-lab capture --har FILE --out DIR [--keep-cookies]
  pronghorn-lab report DIR... [--fail-if CONDITION]...
  pronghorn-lab har DIR LOAD
  pronghorn-lab reproduce kiwee|cloudflare|tencent [--out DIR] [--resume] [--blocks N] [and as for run]
  pronghorn-lab conformance [--congestion NAMES] [--repeats N] [--seconds N] [--out DIR] [--seed N] [--pronghorn PATH]

run      runs a plan's campaign; writes samples, table and report to DIR (default: lab-results/NAME-TIME)
page     generates a page from its specification
capture  loads a page in Chromium, or reads a HAR file with content, and records it for \`pronghorn replay\`
report   makes tables and report again from the samples in DIR; of several, counts their A/A controls together
har      writes one load of a campaign, by its number, to stdout as HAR 1.2
reproduce  runs the campaign of a published result by criteria that are written down first, and prints published
           beside measured with a verdict for each criterion
conformance  compares each congestion controller over TCP with its namesake over QUIC, on a fixed link

  --out DIR         output folder; it must not exist, or be empty
  --resume          go on with the campaign that is in DIR, after it was interrupted or killed
  --blocks N        instead of the study's 50 blocks
  --congestion A,B  controllers to check: ${CONGESTION_CONTROLS.join(', ')} (default: all)
  --repeats N       transfers of each (default: 3)
  --seconds N       how long a transfer takes (default: 10, at least ${LEAST_SECONDS})
  --seed N          instead of the plan's seed; 0 to ${MAX_SEED}
  --pronghorn PATH  the program pronghorn (default: $PRONGHORN, target/release/pronghorn, the PATH)
  --chromium PATH   the browser (default: $CHROMIUM, Debian's place, the PATH)
  --watch-all       write NetLog and pictures of each load and keep them, not only for the rehearsal; slows the loads
  --fail-if COND    end with code 4 where this is true, such as 'h3.median > 1.1 * h2.median' or
                    'surely h3.firstByte.p90 > 300 ms on lte'; may be given several times
  --wait-ms N       how long to go on recording after the load event (2000), and for what is then on its way
  --timeout SECONDS when to stop waiting for the load event (60)
  --resolve HOST=ADDR[:PORT]  where a host is, instead of asking the name service; repeat for more; HOST may be *
  --spki HASH       accept certificates with the public key of this SHA-256, in base64
  --insecure-certificate  accept any certificate
  --keep-cookies    write cookies, authorization fields and posted forms too; they are left out otherwise
  --har FILE        take a HAR file with content instead of a URL
  --help, --version

The table goes to stdout, progress and errors to stderr.

exit codes:
  0    done (invalid or incomplete loads are in the table)
  1    a bug in pronghorn-lab
  2    wrong use of the command line
  3    done, but an arm has no valid, completed load
  4    done, and a condition of --fail-if is true
  65   a plan, page specification, link profile, samples file, recording or HAR file is malformed
  66   a file or folder that was named is not there
  69   pronghorn, Chromium or openssl is missing, the link does not work here, or a page to capture cannot be loaded
  73   the output folder cannot be made, or is not empty
  77   network namespaces or the TUN device are not permitted
  130  interrupted; what was measured until then is in the output folder (of a capture nothing)
`;

const COMMANDS = ['run', 'page', 'capture', 'report', 'har', 'reproduce', 'conformance'];

async function main(args: readonly string[]): Promise<ExitCode> {
  const [command, ...rest] = args;
  if (command === undefined || command === '--help' || command === '-h' || rest.includes('--help')) {
    const asked = command !== undefined;
    (asked ? process.stdout : process.stderr).write(HELP);
    return asked ? ExitCode.Ok : ExitCode.Usage;
  }
  switch (command) {
    case '--version':
      process.stdout.write(`pronghorn-lab ${ownVersion()}\n`);
      return ExitCode.Ok;
    case 'run':
      return run(rest);
    case 'page':
      return page(rest);
    case 'capture':
      return record(rest);
    case 'report':
      return report(rest);
    case 'har':
      return har(rest);
    case 'reproduce':
      return reproduce(rest);
    case 'conformance':
      return conformance(rest);
    default:
      throw usage(`there is no command ${command}`, suggestion(command, COMMANDS));
  }
}

async function run(args: readonly string[]): Promise<ExitCode> {
  const { positional, values } = parse(args, 'run PLAN.toml', {
    out: { type: 'string' },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
    chromium: { type: 'string' },
    'watch-all': { type: 'boolean' },
    resume: { type: 'boolean' },
    'fail-if': { type: 'string', multiple: true },
  });
  const thresholds = parseThresholds(values['fail-if']);
  const given = text(values.seed);
  const seed = given === undefined ? undefined : parseSeed(given);
  const plan = readPlan(positional);
  const resume = values.resume === true;
  if (resume && text(values.out) === undefined) throw usage('--resume needs the --out DIR of the campaign');
  if (resume && seed !== undefined) throw usage('--resume goes on with the seed of the campaign: leave --seed out');
  for (const threshold of thresholds) requireNamed(threshold, plan);
  const out = text(values.out) ?? join('lab-results', `${plan.name}-${timestamp()}`);
  const campaign = await runCampaign({
    plan,
    out,
    seed,
    resume,
    pronghorn: text(values.pronghorn) ?? text(process.env.PRONGHORN),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
  });
  const { exitCode } = await show(out, thresholds);
  if (campaign.status === 'interrupted') {
    process.stderr.write(`interrupted: the loads until then are in ${out}; --resume goes on\n`);
    return ExitCode.Interrupted;
  }
  return exitCode;
}

async function reproduce(args: readonly string[]): Promise<ExitCode> {
  const { positional, values } = parse(args, `reproduce ${Object.keys(STUDIES).join('|')}`, {
    out: { type: 'string' },
    blocks: { type: 'string' },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
    chromium: { type: 'string' },
    'watch-all': { type: 'boolean' },
    resume: { type: 'boolean' },
  });
  const study = findStudy(positional);
  const [blocks, seed, resume] = [text(values.blocks), text(values.seed), values.resume === true];
  if (resume && text(values.out) === undefined) throw usage('--resume needs the --out DIR of the campaign');
  if (resume && (seed !== undefined || blocks !== undefined)) {
    throw usage('--resume goes on with the seed and the blocks of the campaign: leave --seed and --blocks out');
  }
  const out = text(values.out) ?? join('lab-results', `reproduce-${study.name}-${timestamp()}`);
  const campaign = await runStudy(study, {
    blocks: blocks === undefined ? undefined : parseWhole('--blocks', blocks, 1, 10_000),
    out,
    seed: seed === undefined ? undefined : parseSeed(seed),
    resume,
    pronghorn: text(values.pronghorn) ?? text(process.env.PRONGHORN),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
  });
  const { exitCode } = await show(out, []);
  if (campaign.status !== 'interrupted') return exitCode;
  process.stderr.write(`interrupted: the loads until then are in ${out}; --resume goes on\n`);
  return ExitCode.Interrupted;
}

async function conformance(args: readonly string[]): Promise<ExitCode> {
  const { positionals, values } = parseWords(args, {
    congestion: { type: 'string' },
    repeats: { type: 'string' },
    seconds: { type: 'string' },
    out: { type: 'string' },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
  });
  if (positionals[0] !== undefined) throw usage(`the command conformance has no use for ${positionals[0]}`);
  const seed = text(values.seed);
  const options = {
    congestion: parseControllers(text(values.congestion) ?? CONGESTION_CONTROLS.join(',')),
    repeats: parseWhole('--repeats', text(values.repeats) ?? '3', 1, 100),
    seconds: parseWhole('--seconds', text(values.seconds) ?? '10', LEAST_SECONDS, 600),
    seed: seed === undefined ? freshSeed() : parseSeed(seed),
    pronghorn: findPronghorn(text(values.pronghorn) ?? text(process.env.PRONGHORN)),
    signal: interruption(),
  };
  const out = text(values.out) ?? join('lab-results', `conformance-${timestamp()}`);
  const { text: table, exitCode } = await runConformance(out, options);
  process.stdout.write(table);
  return exitCode;
}

function parseControllers(given: string): Congestion[] {
  const names = [...new Set(given.split(',').map((name) => name.trim()))];
  return names.map((name) => {
    const known = CONGESTION_CONTROLS.find((each) => each === name);
    if (known !== undefined) return known;
    throw usage(`--congestion: there is no controller ${name}`, suggestion(name, CONGESTION_CONTROLS));
  });
}

function page(args: readonly string[]): ExitCode {
  const { positional, values } = parse(args, 'page SPEC.toml --out DIR', { out: { type: 'string' } });
  const out = text(values.out);
  if (out === undefined) throw usage('the command page needs --out DIR');
  const generated = generatePage(readPageSpec(positional).value);
  const { manifest } = generated;
  writePage(generated, out);
  process.stdout.write(`${out}: ${manifest.requests} requests, ${manifest.bytes} bytes, seed ${manifest.seed}\n`);
  if (isRecording(out)) process.stdout.write(`it is on several hosts: serve it with \`pronghorn replay ${out}\`\n`);
  return ExitCode.Ok;
}

async function record(args: readonly string[]): Promise<ExitCode> {
  const { positionals, values } = parseWords(args, CAPTURE_OPTIONS);
  const request = captureRequest(positionals, values);
  const warn = (line: string): void => void process.stderr.write(`warning: ${line}\n`);
  const recording = await capture(request, interruption(), warn);
  if (recording === undefined) {
    process.stderr.write('interrupted: nothing was written\n');
    return ExitCode.Interrupted;
  }
  for (const { method, url, reason } of recording.notes ?? []) warn(`${method} ${url}: ${reason}`);
  const bytes = recording.entries.reduce((sum, { body, encoded }) => sum + ((encoded ?? body)?.size ?? 0), 0);
  const { requests, entries } = recording;
  process.stdout.write(`${request.out}: ${requests} requests, ${entries.length} responses, ${bytes} bytes\n`);
  return ExitCode.Ok;
}

async function report(args: readonly string[]): Promise<ExitCode> {
  const options = { 'fail-if': { type: 'string', multiple: true } } as const;
  const { positionals, values } = parseWords(args, options);
  if (positionals.length === 0) throw usage('the form is: pronghorn-lab report DIR...');
  const thresholds = parseThresholds(values['fail-if']);
  const shown: Shown[] = [];
  for (const out of positionals) shown.push(await show(out, thresholds));
  if (shown.length > 1) {
    const control = pooledControl(shown.map(({ results }) => results.comparisons.control));
    process.stdout.write(`\nAll together. ${controlInWords(control, [])}\n`);
  }
  return worstOf(shown.map(({ exitCode }) => exitCode));
}

async function har(args: readonly string[]): Promise<ExitCode> {
  const { positionals } = parseWords(args, {});
  const [out, given, ...more] = positionals;
  if (out === undefined || given === undefined || more.length > 0) {
    throw usage('the form is: pronghorn-lab har DIR LOAD');
  }
  const { name, environment } = readCampaign(out);
  for await (const { load, profile, page: pageName, arm, browser, startedAt } of readSamples(join(out, SAMPLES))) {
    if (String(load) !== given) continue;
    if (browser === undefined) {
      throw new LabError(ExitCode.InputMissing, `load ${given} did not run, so that nothing is known of its requests`);
    }
    const title = `${name}: ${profile}, ${pageName}, ${arm}, load ${load}`;
    const facts = { version: ownVersion(), chromium: environment.chromium, startedAt, title };
    process.stdout.write(`${JSON.stringify(harOf(browser, facts), undefined, 2)}\n`);
    return ExitCode.Ok;
  }
  throw new LabError(
    ExitCode.InputMissing,
    `${out} has no load ${given}`,
    'take a number from the report or samples.jsonl',
  );
}

/** The first of these that any of them has; well, if none has. */
function worstOf(codes: readonly ExitCode[]): ExitCode {
  const order: readonly ExitCode[] = [ExitCode.ThresholdBroken, ExitCode.NothingToCompare];
  return order.find((code) => codes.includes(code)) ?? ExitCode.Ok;
}

interface Shown {
  readonly results: Results;
  readonly exitCode: ExitCode;
}

/** Writes tables and report from the samples, prints the tables, and says what they came to. */
async function show(out: string, given: readonly Threshold[]): Promise<Shown> {
  const campaign = readCampaign(out);
  for (const threshold of given) requireNamed(threshold, campaign);
  const thresholds = [...campaign.failIf.map((condition) => parseThreshold(condition)), ...given];
  const { results, table, comparable } = await writeReports(out);
  process.stdout.write(`\n${table}\nreport: ${join(out, REPORT)}\n`);
  if (hasCriteria(out))
    process.stdout.write(`\n${await writeReproduction(out)}\nwritten: ${join(out, REPRODUCTION)}\n`);
  const cells = results.cells.map(comparedCell);
  const findings = thresholds.flatMap((threshold) => judge(threshold, cells, campaign.seed));
  for (const { kind, line } of findings) process.stderr.write(`${kind === 'broken' ? 'failed' : 'note'}: ${line}\n`);
  const broken = findings.some(({ kind }) => kind === 'broken');
  const exitCode = broken ? ExitCode.ThresholdBroken : comparable ? ExitCode.Ok : ExitCode.NothingToCompare;
  return { results, exitCode };
}

function parseThresholds(given: unknown): Threshold[] {
  return z
    .array(z.string())
    .parse(given ?? [])
    .map((condition) => parseThreshold(condition));
}

function parse(
  args: readonly string[],
  form: string,
  options: NonNullable<ParseArgsConfig['options']>,
): { positional: string; values: Record<string, unknown> } {
  const { positionals, values } = parseWords(args, options);
  const [positional, ...more] = positionals;
  if (positional === undefined || more.length > 0) throw usage(`the form is: pronghorn-lab ${form}`);
  return { positional, values };
}

function parseWords(
  args: readonly string[],
  options: NonNullable<ParseArgsConfig['options']>,
): { positionals: string[]; values: Record<string, unknown> } {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (thrown) {
    throw usage((messageOf(thrown).split('. ')[0] ?? '').replace(/^Unknown/, 'unknown'));
  }
}

function parseSeed(given: string): number {
  const seed = /^\d+$/.test(given) ? Number(given) : NaN;
  if (!(seed <= MAX_SEED)) throw usage(`--seed must be a whole number from 0 to ${MAX_SEED}, not ${given}`);
  return seed;
}

function parseWhole(option: string, given: string, low: number, high: number): number {
  const value = /^\d+$/.test(given) ? Number(given) : Number.NaN;
  if (!(value >= low && value <= high)) {
    throw usage(`${option} must be a whole number from ${low} to ${high}, not ${given}`);
  }
  return value;
}

function usage(message: string, hint = 'see pronghorn-lab --help'): LabError {
  return new LabError(ExitCode.Usage, message, hint);
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function timestamp(): string {
  return new Date().toISOString().slice(0, 19).replaceAll(':', '').replace('T', '-');
}

/** Aborts at the first SIGINT or SIGTERM. At the second the process ends at once, as it would without a handler. */
function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      controller.abort();
    });
  }
  return controller.signal;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (thrown) {
  const known = thrown instanceof LabError;
  process.stderr.write(
    known ? `${thrown.line()}\n` : `error: this is a bug: ${(thrown as Error).stack ?? String(thrown)}\n`,
  );
  process.exitCode = known ? thrown.exitCode : ExitCode.Internal;
}
