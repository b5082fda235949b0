import type { Study } from '../criterion.js';
import { cloudflare } from './cloudflare.js';
import { kiwee } from './kiwee.js';
import { tencent } from './tencent.js';

/**
 * The studies that can be reproduced, by name. Each has a plan of the same name:
 * `plans/reproduce-NAME.toml`.
 */
export const STUDIES: Readonly<Record<string, Study>> = { kiwee, cloudflare, tencent };
