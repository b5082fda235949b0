import { ExitCode, LabError } from '../io/errors.js';

/** How the browser loads the page to capture. */
export interface CaptureOptions {
  readonly url: string;
  readonly waitMilliseconds: number;
  readonly timeoutSeconds: number;
  readonly chromium: string | undefined;
  /** Rules of Chromium's resolver, from `--resolve`. */
  readonly resolverRules: readonly string[];
  /** Hash of a public key to accept, from `--spki`. */
  readonly spki: string | undefined;
  readonly insecureCertificate: boolean;
  readonly keepCookies: boolean;
  /** A status outside 2xx that the document may have. */
  readonly allowStatus: number | undefined;
}

/** Options of `pronghorn-lab capture` as `parseArgs` takes them. */
export const CAPTURE_OPTIONS = {
  out: { type: 'string' },
  har: { type: 'string' },
  'wait-ms': { type: 'string' },
  timeout: { type: 'string' },
  chromium: { type: 'string' },
  resolve: { type: 'string', multiple: true },
  spki: { type: 'string' },
  'insecure-certificate': { type: 'boolean' },
  'keep-cookies': { type: 'boolean' },
  'allow-status': { type: 'string' },
} as const;

const MAX_WAIT_MS = 600_000;
const MAX_TIMEOUT_SECONDS = 600;

/** What to capture: a page, or a HAR file to convert. */
export type CaptureRequest =
  | { readonly kind: 'page'; readonly out: string; readonly options: CaptureOptions }
  | {
      readonly kind: 'har';
      readonly out: string;
      readonly har: string;
      readonly keepCookies: boolean;
      readonly allowStatus: number | undefined;
    };

/** Checks the arguments and options of the command line. */
export function captureRequest(
  words: readonly string[],
  values: Record<string, unknown>,
): CaptureRequest {
  const out = text(values.out);
  if (out === undefined) throw usage('the command capture needs --out DIR');
  const keepCookies = values['keep-cookies'] === true;
  const allowStatus =
    text(values['allow-status']) === undefined
      ? undefined
      : integer(values, 'allow-status', 0, 300, 599);
  const har = text(values.har);
  const [url, ...more] = words;
  if (more.length > 0 || (url === undefined) === (har === undefined)) {
    throw usage(
      'usage: pronghorn-lab capture URL --out DIR, or: pronghorn-lab capture --har FILE --out DIR',
    );
  }
  if (har !== undefined) {
    const useless = Object.keys(values).find(
      (name) => !['out', 'har', 'keep-cookies', 'allow-status'].includes(name),
    );
    if (useless !== undefined)
      throw usage(`--${useless} is only for capturing a URL, not for --har`, 'remove it');
    return { kind: 'har', out, har, keepCookies, allowStatus };
  }
  const options: CaptureOptions = {
    url: checkedUrl(url ?? ''),
    waitMilliseconds: integer(values, 'wait-ms', 2000, 0, MAX_WAIT_MS),
    timeoutSeconds: integer(values, 'timeout', 60, 1, MAX_TIMEOUT_SECONDS),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    resolverRules: (Array.isArray(values.resolve) ? values.resolve : []).map((rule) =>
      resolverRule(String(rule)),
    ),
    spki: checkedSpki(text(values.spki)),
    insecureCertificate: values['insecure-certificate'] === true,
    keepCookies,
    allowStatus,
  };
  return { kind: 'page', out, options };
}

function checkedUrl(given: string): string {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw usage(
      `${given} is not an http or https URL`,
      'give the full URL, such as https://example.org/',
    );
  }
  if (url.username !== '' || url.password !== '') {
    throw usage(
      'the URL contains a user name or password, which the recording would reveal',
      'remove them',
    );
  }
  url.hash = '';
  return url.href;
}

/**
 * Returns a Chromium resolver rule for `HOST=ADDRESS` or `HOST=ADDRESS:PORT`, with an IPv6 address
 * in brackets.
 */
function resolverRule(given: string): string {
  const [, host, address] =
    /^([A-Za-z0-9*._-]+)=([A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?)$/.exec(
      given,
    ) ?? [];
  if (host === undefined || address === undefined) {
    throw usage(
      `--resolve ${given} is not HOST=ADDRESS or HOST=ADDRESS:PORT`,
      'for example www.example.org=127.0.0.1:8443',
    );
  }
  return `MAP ${host} ${address}`;
}

function checkedSpki(given: string | undefined): string | undefined {
  if (given !== undefined && Buffer.from(given, 'base64').length !== 32) {
    throw usage(
      `--spki ${given} is not the SHA-256 hash of a public key in base64`,
      '`pronghorn serve` prints the hash of its certificate',
    );
  }
  return given;
}

function integer(
  values: Record<string, unknown>,
  name: string,
  otherwise: number,
  low: number,
  high: number,
): number {
  const given = text(values[name]);
  if (given === undefined) return otherwise;
  const number = /^\d+$/.test(given) ? Number(given) : NaN;
  if (!(number >= low && number <= high))
    throw usage(`--${name} must be a whole number from ${low} to ${high}, not ${given}`);
  return number;
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function usage(message: string, hint = 'see pronghorn-lab --help'): LabError {
  return new LabError(ExitCode.Usage, message, hint);
}
