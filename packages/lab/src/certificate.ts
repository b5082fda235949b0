import { spawnSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { HOST } from './browser.js';
import { ExitCode, LabError } from './errors.js';

/** The server's certificate for one campaign. */
export interface Certificate {
  readonly certPath: string;
  readonly keyPath: string;
  /** Base64 of the SHA-256 of its public key, which is what Chromium is told to accept. */
  readonly spki: string;
}

const DAYS = 14;

/** Makes an ECDSA P-256 certificate in `folder`, for the lab's own host and `hosts` beside it. */
export function makeCertificate(folder: string, address: string, hosts: readonly string[] = []): Certificate {
  const certPath = join(folder, 'cert.pem');
  const keyPath = join(folder, 'key.pem');
  const run = spawnSync(
    'openssl',
    [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', String(DAYS)],
      ...['-subj', `/CN=${HOST}`, '-addext', `subjectAltName=${alternativeNames(address, hosts)}`],
      ...['-keyout', keyPath, '-out', certPath],
    ],
    { encoding: 'utf8', timeout: 20_000 },
  );
  if (run.error !== undefined) {
    throw new LabError(ExitCode.Unavailable, 'the program openssl was not found', 'install the package openssl');
  }
  if (run.status !== 0) {
    const reason = run.stderr.trim().split('\n').at(-1) ?? '';
    throw new LabError(ExitCode.Unavailable, `openssl made no certificate: ${reason}`);
  }
  return { certPath, keyPath, spki: spkiHash(readFileSync(certPath, 'utf8')) };
}

/** One certificate for all hosts, as a site's own server has it: a browser may then use one connection for them. */
function alternativeNames(address: string, hosts: readonly string[]): string {
  const names = [...new Set([HOST, ...hosts])].map((host) => (isIP(host) === 0 ? `DNS:${host}` : `IP:${host}`));
  return [...names, `IP:${address}`].join(',');
}

/** The hash of a certificate's public key in the form of Chromium's `--ignore-certificate-errors-spki-list`. */
export function spkiHash(pem: string): string {
  const spki = new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(spki).digest('base64');
}
