import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64';
import { readCampaign, writeCampaign, type Campaign } from '../src/campaign/campaign-file.js';
import type { Sample } from '../src/samples/sample.js';
import { deriveSeed, generator } from '../src/campaign/seed.js';
import { recorded, recordedFolder } from './recorded.js';

/** Size of a generated campaign. */
export interface Extent {
  readonly profiles: readonly string[];
  readonly pages: readonly string[];
  /** Arms, and how many times as long as the first arm's their loads take. */
  readonly arms: Readonly<Record<string, number>>;
  readonly blocks: number;
}

const SEED = 20261122;

/**
 * Makes an output folder whose loads have times drawn from a seed (log-normal, sigma 0.3) and
 * otherwise equal the recorded one.
 */
export function generateCampaign(folder: string, extent: Extent): void {
  const { profiles, pages, arms, blocks } = extent;
  const known = readCampaign(recordedFolder);
  const [profile, page, arm] = [known.profiles[0], known.pages[0], known.arms[0]];
  if (!profile || !page || !arm) throw new Error('the recorded campaign is empty');
  const campaign: Campaign = {
    ...known,
    blocks: { min: blocks, max: blocks },
    profiles: profiles.map((name) => ({ ...profile, name })),
    pages: pages.map((name) => ({ ...page, name })),
    arms: Object.keys(arms).map((name) => ({ ...arm, name })),
    baseline: Object.keys(arms)[0] ?? '',
  };
  mkdirSync(folder, { recursive: true });
  writeCampaign(folder, campaign);
  const path = join(folder, 'samples.jsonl');
  writeFileSync(path, '');
  const like = recorded('h3');
  let load = 0;
  for (let block = 0; block <= blocks; block++) {
    const lines = profiles.flatMap((profileName) =>
      pages.flatMap((pageName) =>
        Object.entries(arms).map(([armName, factor], position) => {
          load += 1;
          const time = factor * drawnTime(profileName, pageName, armName, block);
          const own = {
            profile: profileName,
            page: pageName,
            arm: armName,
            load,
            block,
            position: position + 1,
          };
          // All of the load's times are stretched alike.
          const stretch = time / (like.times.load ?? time);
          const times = Object.fromEntries(
            Object.entries(like.times).map(([name, value]) => [name, value * stretch]),
          );
          const sample: Sample = { ...like, ...own, times: { ...times, load: time } };
          return `${JSON.stringify(sample)}\n`;
        }),
      ),
    );
    appendFileSync(path, lines.join(''));
  }
}

function drawnTime(...place: readonly (string | number)[]): number {
  const random = generator(deriveSeed(SEED, ...place));
  // The sum of twelve uniform numbers is approximately normal, with a variance of 1.
  const normal = Array.from({ length: 12 }, () => uniformFloat64(random)).reduce(
    (sum, one) => sum + one,
    -6,
  );
  return 0.4 * Math.exp(0.3 * normal);
}
