import { createHash } from 'node:crypto';
import { z } from 'zod';
import { ExitCode, LabError } from '../io/errors.js';
import { bundledFile } from '../io/bundled-file.js';
import { readTomlFile } from '../io/toml-file.js';
import type { Conformance } from './conformance.js';

/** The link on which controllers are compared. */
export interface FixedLink {
  readonly path: string;
  readonly facts: Conformance['link'];
}

/** The required part of the profile; `pronghorn link` checks the rest. */
const profile = z.looseObject({
  down: z.looseObject({ rate_mbit_per_second: z.number(), queue_bytes: z.number() }),
});

/** Reads the profile `conformance`: 20 Mbit/s, 50 ms, a queue of one bandwidth-delay product. */
export function conformanceLink(): FixedLink {
  const path = bundledFile('profiles', 'conformance.toml');
  if (path !== undefined) return fixedLink(path);
  throw new LabError(
    ExitCode.InputMissing,
    'this installation has no profiles/conformance.toml',
    'reinstall pronghorn-lab',
  );
}

function fixedLink(path: string): FixedLink {
  const { text, value } = readTomlFile(path, 'link profile', profile);
  const { rate_mbit_per_second: rateMbit, queue_bytes: queueBytes } = value.down;
  const sha256 = createHash('sha256').update(text).digest('hex');
  return {
    path,
    facts: { name: 'conformance', sha256, rateMbit, queueMs: (queueBytes * 8) / (rateMbit * 1000) },
  };
}
