import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { ExitCode, LabError } from '../errors.js';
import { readTomlFile } from '../toml-file.js';
import type { Conformance } from './conformance.js';

/** The link on which controllers are compared. */
export interface FixedLink {
  readonly path: string;
  readonly facts: Conformance['link'];
}

/** What is needed of the profile; `pronghorn link` checks the rest. */
const profile = z.looseObject({
  down: z.looseObject({ rate_mbit_per_second: z.number(), queue_bytes: z.number() }),
});

/** Finds `profiles/conformance.toml` of this repository: 20 Mbit/s, 50 ms, a queue of one bandwidth-delay product. */
export function conformanceLink(): FixedLink {
  const name = join('profiles', 'conformance.toml');
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    const path = join(folder, name);
    if (existsSync(path)) return fixedLink(path);
  }
  throw new LabError(ExitCode.InputMissing, `this installation has no ${name}`, 'run it from the repository');
}

function fixedLink(path: string): FixedLink {
  const { text, value } = readTomlFile(path, 'link profile', profile);
  const { rate_mbit_per_second: rateMbit, queue_bytes: queueBytes } = value.down;
  const sha256 = createHash('sha256').update(text).digest('hex');
  return { path, facts: { name: 'conformance', sha256, rateMbit, queueMs: (queueBytes * 8) / (rateMbit * 1000) } };
}
