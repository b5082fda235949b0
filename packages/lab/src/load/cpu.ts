import type { Browser, Protocol as DevTools } from 'puppeteer-core';
import type { BrowserCpu } from '../sample.js';

export type Processes = readonly DevTools.SystemInfo.ProcessInfo[];

const NETWORK_SERVICE = 'network.mojom.NetworkService';

/** The browser's processes with the processor time that each has used. */
export async function readProcesses(browser: Browser): Promise<Processes> {
  const session = await browser.target().createCDPSession();
  try {
    return (await session.send('SystemInfo.getProcessInfo')).processInfo;
  } finally {
    await session.detach();
  }
}

/** What was used between two readings. A process that ended in between is not in it: none that matters to a load does. */
export function cpuBetween(before: Processes, after: Processes): BrowserCpu {
  const sum = { network: 0, renderer: 0, gpu: 0, other: 0 };
  for (const { id, type, cpuTime } of after) {
    const already = before.find((process) => process.id === id)?.cpuTime ?? 0;
    sum[kindOf(type)] += cpuTime - already;
  }
  return sum;
}

function kindOf(type: string): keyof BrowserCpu {
  switch (type) {
    case NETWORK_SERVICE:
      return 'network';
    case 'renderer':
      return 'renderer';
    case 'GPU':
      return 'gpu';
    default:
      return 'other';
  }
}
