import type { Campaign } from '../src/campaign/campaign-file.js';
import type { Sample } from '../src/samples/sample.js';
import type { Study } from '../src/reproduce/criterion.js';
import { readCampaign } from '../src/campaign/campaign-file.js';
import { recordedFolder, recordedSamples } from './recorded.js';

/** Returns a campaign that was never run, for computations from samples. */
export function madeCampaign(study: Study, change: Partial<Campaign> = {}): Campaign {
  const base = readCampaign(recordedFolder);
  const names = (key: 'profile' | 'page'): string[] => [
    ...new Set(study.published.map((row) => row[key])),
  ];
  return {
    ...base,
    name: `reproduce-${study.name}`,
    seed: 7,
    blocks: { min: 50, max: 50 },
    status: 'finished',
    profiles: names('profile').map((name) => ({ name, sha256: '', text: '' })),
    pages: names('page').map((name) => ({ name, requests: 1 })),
    ...change,
  };
}

const [recorded] = recordedSamples() as [Sample];

export interface MadeLoad {
  readonly profile: string;
  readonly page: string;
  readonly arm: string;
  readonly block: number;
  /** The value of all times, in seconds; undefined for a load that did not complete. */
  readonly seconds: number | undefined;
  readonly valid?: boolean;
}

/** Returns a sample with the given times; all other fields are a recorded one's. */
export function madeSample({ seconds, valid = true, ...cell }: MadeLoad, number: number): Sample {
  const times =
    seconds === undefined ? {} : { load: seconds, lastByte: seconds, firstByte: seconds / 2 };
  return {
    ...recorded,
    ...cell,
    load: number,
    startedAt: '2026-11-22T12:00:01.000Z',
    outcome: seconds === undefined ? 'timeout' : 'completed',
    valid,
    invalidReasons: valid ? [] : ['made so'],
    times,
  };
}
