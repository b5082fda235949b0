import { isRecording } from '../capture/recording.js';
import { ExitCode } from '../io/errors.js';
import { writePage } from '../page/folder.js';
import { generatePage } from '../page/generate.js';
import { readPageSpec } from '../page/spec.js';
import { parse, nonEmptyString, usage } from './arguments.js';

export function page(args: readonly string[]): ExitCode {
  const { positional, values } = parse(args, 'page SPEC.toml --out DIR', {
    out: { type: 'string' },
  });
  const out = nonEmptyString(values.out);
  if (out === undefined) throw usage('the command page needs --out DIR');
  const generated = generatePage(readPageSpec(positional).value);
  const { manifest } = generated;
  writePage(generated, out);
  process.stdout.write(
    `${out}: ${manifest.requests} requests, ${manifest.bytes} bytes, seed ${manifest.seed}\n`,
  );
  if (isRecording(out))
    process.stdout.write(
      `the page is on several hosts: serve it with \`pronghorn replay ${out}\`\n`,
    );
  return ExitCode.Ok;
}
