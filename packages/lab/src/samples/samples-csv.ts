import type { Sample } from './sample.js';

export const SAMPLES_CSV = 'samples.csv';

type Field = string | number | boolean | undefined;

const COLUMNS: Readonly<Record<string, (sample: Sample) => Field>> = {
  load: ({ load }) => load,
  block: ({ block }) => block,
  position: ({ position }) => position,
  profile: ({ profile }) => profile,
  page: ({ page }) => page,
  arm: ({ arm }) => arm,
  protocol: ({ protocol }) => protocol,
  visit: ({ visit }) => visit,
  discovery: ({ discovery }) => discovery,
  congestion: ({ congestion }) => congestion,
  server: ({ server }) => server,
  link_seed: ({ linkSeed }) => linkSeed,
  valid: ({ valid }) => valid,
  outcome: ({ outcome }) => outcome,
  load_seconds: ({ times }) => times.load,
  first_byte_seconds: ({ times }) => times.firstByte,
  last_byte_seconds: ({ times }) => times.lastByte,
  first_contentful_paint_seconds: ({ times }) => times.firstContentfulPaint,
  largest_contentful_paint_seconds: ({ times }) => times.largestContentfulPaint,
  wall_seconds: ({ wallSeconds }) => wallSeconds,
  cpu_server_seconds: ({ cpuSeconds }) => cpuSeconds?.server,
  cpu_link_seconds: ({ cpuSeconds }) => cpuSeconds?.link,
  cpu_browser_network_seconds: (sample) => browserCpu(sample)?.network,
  cpu_browser_renderer_seconds: (sample) => browserCpu(sample)?.renderer,
  cpu_browser_gpu_seconds: (sample) => browserCpu(sample)?.gpu,
  cpu_browser_other_seconds: (sample) => browserCpu(sample)?.other,
  machine_idle_seconds: ({ link }) => link?.machine?.idle_seconds ?? undefined,
  machine_steal_seconds: ({ link }) => link?.machine?.steal_seconds ?? undefined,
  hystart_train_detected: ({ link }) => link?.hystart?.train_detected,
  hystart_delay_detected: ({ link }) => link?.hystart?.delay_detected,
  labels: ({ labels }) => [...new Set(labels?.map(({ kind }) => kind))].join(' '),
  reason: ({ reason, invalidReasons }) =>
    [reason, ...invalidReasons].filter((each) => each !== undefined).join('; '),
};

/** Returns the header line of the table of loads, in CSV as defined by RFC 4180. */
export function csvHead(): string {
  return line(Object.keys(COLUMNS));
}

/** Returns a load as a line for `csvHead`. Unknown values are empty fields. */
export function csvLine(sample: Sample): string {
  return line(Object.values(COLUMNS).map((field) => field(sample)));
}

function browserCpu({ cpuSeconds, browser }: Sample): NonNullable<Sample['cpuSeconds']>['browser'] {
  return cpuSeconds?.browser ?? browser?.cpuSeconds;
}

function line(fields: readonly Field[]): string {
  return `${fields.map((field) => quoted(String(field ?? ''))).join(',')}\r\n`;
}

/**
 * Quotes a field with a comma, a quote or a line break, and doubles its quotes (RFC 4180, section
 * 2).
 */
function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
