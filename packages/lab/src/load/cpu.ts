import type { Browser, Protocol as DevTools } from 'puppeteer-core';
import type { BrowserCpu } from '../samples/sample.js';

export type Processes = readonly DevTools.SystemInfo.ProcessInfo[];

const NETWORK_SERVICE = 'network.mojom.NetworkService';

/** Returns the browser's processes with the processor time used by each. */
export async function readProcesses(browser: Browser): Promise<Processes> {
  const session = await browser.target().createCDPSession();
  try {
    return (await session.send('SystemInfo.getProcessInfo')).processInfo;
  } finally {
    await session.detach();
  }
}

/**
 * Returns the processor time used between two readings. A process that ended in between is not
 * included; none that matters to a load does.
 */
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
