import { spawnSync } from 'node:child_process';
import { createHash, randomBytes, X509Certificate } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { HOST } from './browser.js';
import { ExitCode, LabError } from '../io/errors.js';

/** The server's certificate for one campaign. */
export interface Certificate {
  readonly certPath: string;
  readonly keyPath: string;
  /** Base64 of the SHA-256 of its public key, which Chromium is configured to accept. */
  readonly spki: string;
}

/**
 * The certificate that a server presents. The default, `small`, is one self-signed certificate with
 * a P-256 key, some 450 bytes. The others are chains like those of public authorities, each with a
 * leaf and one intermediate whose root is not sent: with the extensions of such certificates and
 * two SCTs (of random bytes), some 2.3 KB with a P-256 key and some 2.7 KB with an RSA-2048 key.
 */
export const CERTIFICATES = ['small', 'ecdsa-chain', 'rsa-chain'] as const;
export type CertificateKind = (typeof CERTIFICATES)[number];

const DAYS = 14;

/** Makes a certificate in `folder`, for the lab's own host and `hosts`. */
export function makeCertificate(
  folder: string,
  address: string,
  hosts: readonly string[] = [],
  kind: CertificateKind = 'small',
): Certificate {
  const certPath = join(folder, 'cert.pem');
  const keyPath = join(folder, 'key.pem');
  const names = alternativeNames(address, hosts);
  if (kind === 'small') {
    const subject = ['-subj', `/CN=${HOST}`, '-addext', `subjectAltName=${names}`];
    openssl(
      'req',
      '-x509',
      ...newKey(KEYS.p256, keyPath),
      ...subject,
      '-days',
      String(DAYS),
      '-out',
      certPath,
    );
  } else {
    makeChain(folder, certPath, keyPath, names, kind);
  }
  return { certPath, keyPath, spki: spkiHash(readFileSync(certPath, 'utf8')) };
}

const KEYS = {
  p256: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'],
  p384: ['ec', '-pkeyopt', 'ec_paramgen_curve:P-384'],
  rsa2048: ['rsa:2048'],
  rsa4096: ['rsa:4096'],
} as const;

function newKey(key: readonly string[], keyPath: string): string[] {
  return ['-newkey', ...key, '-nodes', '-keyout', keyPath];
}

/**
 * Makes root, intermediate and leaf; the file has the leaf first and then the intermediate, as
 * servers send them.
 */
function makeChain(
  folder: string,
  certPath: string,
  keyPath: string,
  names: string,
  kind: Exclude<CertificateKind, 'small'>,
): void {
  const at = (name: string): string => join(folder, name);
  const [leafKey, issuerKey] =
    kind === 'ecdsa-chain' ? [KEYS.p256, KEYS.p384] : [KEYS.rsa2048, KEYS.rsa2048];
  // Public roots are RSA-4096 for both: the signature takes 512 bytes of the intermediate.
  const root = [
    '-subj',
    '/C=XX/O=Pronghorn Lab Trust Services/CN=Lab Root X1',
    '-days',
    String(DAYS),
  ];
  openssl(
    'req',
    '-x509',
    ...newKey(KEYS.rsa4096, at('root-key.pem')),
    ...root,
    '-out',
    at('root.pem'),
  );
  writeFileSync(at('intermediate.ext'), INTERMEDIATE_EXTENSIONS);
  writeFileSync(at('leaf.ext'), leafExtensions(names));
  const sign = (
    name: string,
    key: readonly string[],
    keyFile: string,
    subject: string,
    by: string,
  ): void => {
    openssl('req', ...newKey(key, keyFile), '-subj', subject, '-out', at(`${name}.csr`));
    const issuer = ['-CA', at(`${by}.pem`), '-CAkey', at(`${by}-key.pem`), '-set_serial', serial()];
    const how = ['-days', String(DAYS), '-extfile', at(`${name}.ext`), '-out', at(`${name}.pem`)];
    openssl('x509', '-req', '-in', at(`${name}.csr`), ...issuer, ...how);
  };
  const authority = '/C=XX/O=Pronghorn Lab Trust Services/CN=Lab Authority E7';
  sign('intermediate', issuerKey, at('intermediate-key.pem'), authority, 'root');
  sign('leaf', leafKey, keyPath, `/CN=${HOST}`, 'intermediate');
  const [leaf, intermediate] = ['leaf', 'intermediate'].map((name) =>
    readFileSync(at(`${name}.pem`), 'utf8'),
  );
  writeFileSync(certPath, `${leaf}${intermediate}`);
}

const INTERMEDIATE_EXTENSIONS = `
basicConstraints = critical,CA:TRUE,pathlen:0
keyUsage = critical,digitalSignature,keyCertSign,cRLSign
extendedKeyUsage = clientAuth,serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
authorityInfoAccess = caIssuers;URI:http://x1.i.authority.test/
crlDistributionPoints = URI:http://x1.c.authority.test/
certificatePolicies = 2.23.140.1.2.1
`;

function leafExtensions(names: string): string {
  return `
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature,keyEncipherment
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
authorityInfoAccess = OCSP;URI:http://e7.o.authority.test,caIssuers;URI:http://e7.i.authority.test/
subjectAltName = ${names}
crlDistributionPoints = URI:http://e7.c.authority.test/107.crl
certificatePolicies = 2.23.140.1.2.1
1.3.6.1.4.1.11129.2.4.2 = DER:${octets(timestamps()).toString('hex')}
`;
}

/** Returns a list of two SCTs (RFC 6962, section 3.3) of the usual size, but of no real log. */
function timestamps(): Buffer {
  const one = (): Buffer => {
    // Version 1; log, time, no extensions; ECDSA with SHA-256 and its signature.
    const signature = randomBytes(71);
    const sct = Buffer.concat([
      Buffer.of(0),
      randomBytes(40),
      Buffer.of(0, 0, 4, 3, 0, signature.length),
      signature,
    ]);
    return Buffer.concat([Buffer.of(0, sct.length), sct]);
  };
  const list = Buffer.concat([one(), one()]);
  return Buffer.concat([Buffer.of(0, list.length), list]);
}

/** Encodes 128 to 255 bytes as a DER OCTET STRING. */
function octets(content: Buffer): Buffer {
  return Buffer.concat([Buffer.of(0x04, 0x81, content.length), content]);
}

/** Returns a positive serial number as long as those of public authorities. */
function serial(): string {
  return `0x04${randomBytes(17).toString('hex')}`;
}

function openssl(...args: readonly string[]): void {
  const run = spawnSync('openssl', args, { encoding: 'utf8', timeout: 20_000 });
  if (run.error !== undefined) {
    throw new LabError(
      ExitCode.Unavailable,
      'cannot find the program openssl',
      'install the package openssl',
    );
  }
  if (run.status !== 0) {
    const reason = run.stderr.trim().split('\n').at(-1) ?? '';
    throw new LabError(ExitCode.Unavailable, `openssl failed to make a certificate: ${reason}`);
  }
}

/**
 * Returns the names of one certificate for all hosts, as a site's own server has: a browser may
 * then use one connection for them.
 */
function alternativeNames(address: string, hosts: readonly string[]): string {
  const names = [...new Set([HOST, ...hosts])].map((host) =>
    isIP(host) === 0 ? `DNS:${host}` : `IP:${host}`,
  );
  return [...names, `IP:${address}`].join(',');
}

/**
 * Returns the hash of a certificate's public key in the form of Chromium's
 * `--ignore-certificate-errors-spki-list`.
 */
export function spkiHash(pem: string): string {
  const spki = new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
  return createHash('sha256').update(spki).digest('base64');
}
