import { capture } from '../capture/capture.js';
import { CAPTURE_OPTIONS, captureRequest } from '../capture/options.js';
import { readRecording, type Recording } from '../capture/recording.js';
import { countThinkTimes, describeThinkTimes, thinkTimesWarning } from '../capture/think-time.js';
import { ExitCode } from '../io/errors.js';
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
  const bytes = recording.entries.reduce(
    (sum, { body, encoded }) => sum + ((encoded ?? body)?.size ?? 0),
    0,
  );
  const { requests, entries, document } = recording;
  const { uncounted } = readRecording(request.out);
  process.stdout.write(
    `${request.out}: ${requests} requests, ${entries.length} responses, ${bytes} bytes\n`,
  );
  if (document !== undefined) {
    const title = document.title === undefined ? 'without a title' : `"${document.title}"`;
    process.stdout.write(`document: ${document.url}, status ${document.status}, ${title}\n`);
  }
  printThinkTimes(recording, warn);
  if (uncounted > 0) {
    process.stdout.write(
      `${uncounted} of the responses ${uncounted === 1 ? 'is' : 'are'} for the page's icon or were requested after the load event: ` +
        'a replay serves them, but they do not count towards a complete load\n',
    );
  }
  return ExitCode.Ok;
}

function printThinkTimes({ entries }: Recording, warn: (line: string) => void): void {
  const counts = countThinkTimes(entries);
  process.stdout.write(`think times: ${describeThinkTimes(counts)}\n`);
  const wrong = thinkTimesWarning(counts);
  if (wrong !== undefined) warn(wrong);
}
