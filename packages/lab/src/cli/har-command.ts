import { join } from 'node:path';
import { readCampaign } from '../campaign/campaign-file.js';
import { ownVersion } from '../campaign/environment.js';
import { ExitCode, LabError } from '../io/errors.js';
import { harOf } from '../samples/har.js';
import { readSamples, SAMPLES } from '../samples/samples-file.js';
import { parseWords, usage } from './arguments.js';

export async function har(args: readonly string[]): Promise<ExitCode> {
  const { positionals } = parseWords(args, {});
  const [out, given, ...more] = positionals;
  if (out === undefined || given === undefined || more.length > 0) {
    throw usage('usage: pronghorn-lab har DIR LOAD');
  }
  const { name, environment } = readCampaign(out);
  for await (const { load, profile, page: pageName, arm, browser, startedAt } of readSamples(
    join(out, SAMPLES),
  )) {
    if (String(load) !== given) continue;
    if (browser === undefined) {
      throw new LabError(
        ExitCode.InputMissing,
        `load ${given} did not run, so it has no requests to export`,
      );
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
