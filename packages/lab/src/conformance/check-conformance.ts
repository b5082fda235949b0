import { join } from 'node:path';
import { writeAtOnce } from '../campaign/campaign-file.js';
import { ExitCode } from '../io/errors.js';
import { lockMachine, Locks, type MachineUse } from '../campaign/lock.js';
import { createFolder, requireFree } from '../io/output-folder.js';
import { html, Html } from '../report/html.js';
import { STYLE } from '../report/style.js';
import type { Conformance, Transfer } from './conformance.js';
import { writeConformance } from './file.js';
import { checkConformance, type ConformanceOptions } from './run-conformance.js';
import { conformanceSection } from './conformance-section.js';
import { conformanceMarkdown } from './conformance-text.js';

const TEXT = 'conformance.md';
const DOCUMENT = 'conformance.html';

/**
 * Runs the check into a separate folder: data after each transfer, text and document at the end.
 */
export async function runConformance(
  out: string,
  {
    machine,
    ...options
  }: Omit<ConformanceOptions, 'onProgress'> & { readonly machine: MachineUse },
): Promise<{ text: string; exitCode: ExitCode }> {
  requireFree(out);
  const locks = new Locks();
  try {
    const machineLock = await lockMachine(machine, options.signal);
    locks.add(machineLock);
    createFolder(out);
    return await runLocked(out, { ...options, machineLock, sharedMachine: machine.share });
  } finally {
    locks.release();
  }
}

async function runLocked(
  out: string,
  options: Omit<ConformanceOptions, 'onProgress'>,
): Promise<{ text: string; exitCode: ExitCode }> {
  const conformance = await checkConformance({
    ...options,
    onProgress: (so, transfer) => {
      writeConformance(out, so);
      if (transfer !== undefined) process.stderr.write(`${describeTransfer(transfer, so)}\n`);
    },
  });
  const text = conformanceMarkdown(conformance);
  writeAtOnce(join(out, TEXT), text);
  writeAtOnce(join(out, DOCUMENT), documentOf(conformance));
  return { text: `${text}\nreport: ${join(out, DOCUMENT)}\n`, exitCode: exitCodeOf(conformance) };
}

function exitCodeOf({ status, controllers }: Conformance): ExitCode {
  if (status === 'interrupted') return ExitCode.Interrupted;
  const whole = controllers.every(({ distance }) => distance !== undefined);
  return whole ? ExitCode.Ok : ExitCode.NothingToCompare;
}

/** Returns a transfer as one line for the terminal. */
export function describeTransfer(
  { congestion, protocol, repeat, shape, invalidReasons }: Transfer,
  { repeats }: Conformance,
): string {
  const { throughputMbit, queueDelayMs, lostPercent } = shape;
  const figures = `${throughputMbit.toFixed(2)} Mbit/s, queue ${queueDelayMs.p50.toFixed(1)} ms, ${lostPercent.toFixed(2)} % lost`;
  const verdict = invalidReasons.length === 0 ? 'valid' : `INVALID: ${invalidReasons.join('; ')}`;
  return `[${repeat}/${repeats}] ${congestion} over ${protocol}: ${figures}, ${verdict}`;
}

function documentOf(conformance: Conformance): string {
  const document = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <link rel="icon" href="data:," />
        <title>Conformance of congestion controllers: Pronghorn lab</title>
        <style>
          ${new Html(STYLE)}
        </style>
      </head>
      <body>
        <main>${conformanceSection(conformance)}</main>
      </body>
    </html> `;
  return document.markup;
}
