import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import {
  CERTIFICATES,
  makeCertificate,
  spkiHash,
  type CertificateKind,
} from '../src/run/certificate.js';

interface Made {
  readonly chain: readonly X509Certificate[];
  readonly bytes: number;
  readonly spki: string;
  readonly pem: string;
}

function make(kind: CertificateKind): Made {
  const folder = mkdtempSync(join(tmpdir(), 'lab-certificate-'));
  try {
    const { certPath, spki } = makeCertificate(folder, '10.77.0.2', ['images.bench.test'], kind);
    const pem = readFileSync(certPath, 'utf8');
    const chain = pem.split(/(?=-----BEGIN)/).map((each) => new X509Certificate(each));
    return { chain, bytes: chain.reduce((sum, { raw }) => sum + raw.length, 0), spki, pem };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The leaf's key, the certificates that are sent, and their bytes. */
const EXPECTED: Readonly<
  Record<CertificateKind, { key: string; certificates: number; least: number; most: number }>
> = {
  small: { key: 'ec', certificates: 1, least: 350, most: 600 },
  'ecdsa-chain': { key: 'ec', certificates: 2, least: 2_000, most: 2_700 },
  'rsa-chain': { key: 'rsa', certificates: 2, least: 2_500, most: 3_000 },
};

for (const kind of CERTIFICATES) {
  test(`certificate ${kind} has the documented size and key`, () => {
    const { key, certificates, least, most } = EXPECTED[kind];
    const { chain, bytes, spki, pem } = make(kind);
    const [leaf, issuer] = chain as [X509Certificate, X509Certificate | undefined];
    assert.equal(chain.length, certificates);
    assert.equal(leaf.publicKey.asymmetricKeyType, key);
    assert.ok(bytes >= least && bytes <= most, `${bytes} bytes`);
    assert.equal(spki, spkiHash(pem));
    for (const host of ['bench.test', 'images.bench.test'])
      assert.equal(leaf.checkHost(host), host);
    if (issuer !== undefined) assert.ok(leaf.checkIssued(issuer) && leaf.verify(issuer.publicKey));
  });
}
