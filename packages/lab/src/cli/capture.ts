import { capture } from '../capture/capture.js';
import { CAPTURE_OPTIONS, captureRequest } from '../capture/options.js';
import { ExitCode } from '../errors.js';
import { parseWords } from './arguments.js';
import { interruption } from './interruption.js';

export async function record(args: readonly string[]): Promise<ExitCode> {
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
