import { writePage } from '../page/folder.js';
import { generatePage } from '../page/generate.js';
import type { PageSpec } from '../page/spec.js';
import type { Certificate } from './certificate.js';
import type { WarmPage } from '../load/job.js';
import type { Arm } from '../campaign/plan.js';

/** Another site than the page's. In the link's namespace no other program uses the port. */
const ORIGIN = 'warm.test:4443';

/** A few small resources of each kind that pages have. */
const SPEC: PageSpec = {
  name: 'warm',
  seed: 1,
  html_bytes: 12_000,
  resources: [
    { kind: 'stylesheet', count: 1, total_bytes: 8_000 },
    { kind: 'script', count: 2, total_bytes: 40_000 },
    { kind: 'font', count: 1, total_bytes: 20_000 },
    { kind: 'image', count: 4, total_bytes: 40_000 },
  ],
};

/** Writes the page that a warm browser shows first into `folder`. */
export function writeWarmPage(folder: string): void {
  writePage(generatePage(SPEC), folder);
}

/**
 * Returns the server of the warm-up page for an arm. It uses the arm's protocol, with two
 * exceptions without TLS: if the browser would learn something about the network that the arm has
 * to discover (`auto`), and if the browser trusts only public servers.
 */
export function warmPageFor(
  pronghorn: string,
  folder: string,
  { protocol }: Arm,
  certificate: Certificate | undefined,
): WarmPage {
  const serve = [pronghorn, 'serve', folder, '--grace', '0', '--quiet', '--workers', '1'];
  if (certificate === undefined || protocol === 'http' || protocol === 'auto') {
    return { command: [...serve, '--listen', 'http://127.0.0.1:0'] };
  }
  const { certPath, keyPath } = certificate;
  const listen = [
    '--listen',
    ORIGIN.replace(/^.*:/, '127.0.0.1:'),
    '--cert',
    certPath,
    '--key',
    keyPath,
  ];
  return { command: [...serve, ...listen], origin: ORIGIN };
}
