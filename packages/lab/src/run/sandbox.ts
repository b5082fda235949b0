import { chmodSync, chownSync, mkdirSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import puppeteer, { type Browser } from 'puppeteer-core';
import { messageOf } from '../io/errors.js';
import { closeBrowser } from '../load/close.js';
import { findOnPath } from './programs.js';
import { removeFolder } from '../io/scratch.js';

/** How Chromium is isolated from the machine. */
export interface Confinement {
  /** Whether Chromium's own sandbox is on. */
  readonly sandbox: boolean;
  /** The user that runs Chromium instead of root, because Chromium has no sandbox as root. */
  readonly user?: User;
  /** Why the sandbox is off. */
  readonly reason?: string;
}

interface User {
  readonly id: number;
  readonly group: number;
  /** Path of the program that switches to this user. */
  readonly setpriv: string;
}

/** `nobody` and `nogroup`, which own no files and exist on every Linux. */
const NOBODY = 65_534;
/**
 * World-writable folder. The path of a socket that Chromium creates in it stays below 108 bytes.
 */
const COMMON_TEMPORARY = '/tmp';

/** Parameters for starting a browser. */
export interface Launch {
  readonly chromium: string;
  readonly confinement: Confinement;
  /** A separate folder for the browser, with its profile. */
  readonly folder: string;
  readonly args: readonly string[];
  /** Files that the browser will write. */
  readonly writes?: readonly string[];
  /** Time limit for a command, instead of the library's three minutes. */
  readonly protocolTimeout?: number;
}

/** Starts a browser with a fresh profile. It ends with this process, however that ends. */
export async function launchBrowser(launch: Launch): Promise<Browser> {
  const { chromium, confinement, folder, args, writes = [], protocolTimeout } = launch;
  const { sandbox, user } = confinement;
  const userDataDir = join(folder, 'user-data');
  mkdirSync(userDataDir);
  for (const file of writes) writeFileSync(file, '');
  if (user !== undefined) {
    admit(folder, user);
    for (const path of [userDataDir, ...writes]) chownSync(path, user.id, user.group);
  }
  const all = [...(sandbox ? [] : ['--no-sandbox']), ...args];
  const common = {
    // Over a pipe, the browser ends when this process does.
    pipe: true,
    ...(protocolTimeout !== undefined && { protocolTimeout }),
    handleSIGINT: false,
    handleSIGTERM: false,
    handleSIGHUP: false,
  };
  if (user === undefined) {
    return puppeteer.launch({
      ...common,
      executablePath: chromium,
      headless: true,
      userDataDir,
      args: all,
    });
  }
  return puppeteer.launch({
    ...common,
    executablePath: user.setpriv,
    ignoreDefaultArgs: true,
    args: [
      ...[`--reuid=${user.id}`, `--regid=${user.group}`, '--clear-groups', '--', chromium],
      ...puppeteer.defaultArgs({ headless: true, userDataDir, args: all }),
    ],
    env: { ...process.env, HOME: userDataDir, TMPDIR: COMMON_TEMPORARY },
  });
}

/** Makes a temporary folder that the browser's user can enter. */
export function makeFolderFor({ user }: Confinement, prefix: string): string {
  const folder = mkdtempSync(prefix);
  if (user !== undefined) admit(folder, user);
  return folder;
}

/** Gives only this user access to its files in a folder. */
export function admit(folder: string, { group }: User): void {
  chownSync(folder, -1, group);
  chmodSync(folder, 0o710);
}

/**
 * Starts Chromium to find out how well it can be confined on this machine; its folder is created
 * within `within`.
 */
export async function findConfinement(chromium: string, within: string): Promise<Confinement> {
  const isRoot = process.geteuid?.() === 0;
  const user = isRoot ? otherUser(within) : undefined;
  if (typeof user === 'string') return { sandbox: false, reason: user };
  const as = user === undefined ? {} : { user };
  const refusal = await whyNot({ sandbox: true, ...as }, chromium, within);
  if (refusal === undefined) return { sandbox: true, ...as };
  if (user === undefined) return { sandbox: false, reason: refusal };
  const isAtLeastOther = (await whyNot({ sandbox: false, user }, chromium, within)) === undefined;
  return { sandbox: false, ...(isAtLeastOther && { user }), reason: refusal };
}

/** Returns the user that can run Chromium instead of root, or why there is none. */
function otherUser(within: string): User | string {
  const setpriv = findOnPath(['setpriv']);
  if (setpriv === undefined)
    return 'Chromium has no sandbox for root, and setpriv, which would run it as another user, is missing';
  for (let folder = dirname(within); ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) {
      return `Chromium has no sandbox for root, and other users cannot enter ${folder}; set TMPDIR to a folder that they can enter`;
    }
    if (folder === dirname(folder)) return { id: NOBODY, group: NOBODY, setpriv };
  }
}

/** Starts the browser once and reads its sandbox state; undefined if the sandbox works. */
async function whyNot(
  confinement: Confinement,
  chromium: string,
  within: string,
): Promise<string | undefined> {
  const { user, sandbox } = confinement;
  if (user !== undefined) admit(within, user);
  const folder = makeFolderFor(confinement, join(within, 'sandbox-'));
  try {
    const browser = await launchBrowser({
      chromium,
      confinement,
      folder,
      args: ['--disable-gpu', '--no-first-run'],
    });
    try {
      if (!sandbox) return undefined;
      const [page] = await browser.pages();
      await page?.goto('chrome://sandbox');
      const said = String(await page?.evaluate('document.body.innerText'));
      return said.includes('You are adequately sandboxed')
        ? undefined
        : `Chromium reports: ${said.trim().split('\n').at(-1)}`;
    } finally {
      await closeBrowser(browser);
    }
  } catch (thrown) {
    const lines = messageOf(thrown).split('\n');
    const telling = lines.find((line) => /sandbox|FATAL/i.test(line)) ?? lines[0] ?? '';
    return `Chromium does not start with its sandbox: ${telling.replace(/^.*\]\s*/, '').trim()}`;
  } finally {
    await removeFolder(folder);
  }
}

/** Describes the confinement: "on, as user 65534", or "off: …". */
export function describeConfinement({ sandbox, user, reason }: Confinement): string {
  const as = user === undefined ? '' : `, as user ${user.id}`;
  return `${sandbox ? 'on' : 'off'}${as}${reason === undefined ? '' : `: ${reason}`}`;
}
