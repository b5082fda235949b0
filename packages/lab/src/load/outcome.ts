import type { BrowserSide, DevToolsRequest } from '../sample.js';
import type { LoadJob } from './job.js';

/** How the navigation ended. */
export type LoadEnd =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'timeout'; readonly seconds: number }
  | { readonly kind: 'failed'; readonly error: string };

/** The outcome of a load, from how the navigation ended and what became of its requests. */
export function outcomeOf(
  end: LoadEnd,
  requests: readonly DevToolsRequest[],
  { expectedRequests: expected, expectedFailures }: Pick<LoadJob, 'expectedRequests' | 'expectedFailures'>,
): Pick<BrowserSide, 'outcome' | 'reason'> {
  if (expected === undefined) return outcomeOfDocument(end, requests);
  const asExpected = (request: DevToolsRequest): boolean =>
    isAnswered(request) || (isWhole(request) && expectedFailures[request.url] === request.status);
  const answered = requests.filter(asExpected).length;
  const bad = requests.find((request) => !asExpected(request));
  switch (end.kind) {
    case 'timeout':
      return {
        outcome: 'timeout',
        reason: `no load event in ${end.seconds} s; ${answered} of ${expected} requests answered`,
      };
    case 'failed':
      return { outcome: 'failed', reason: end.error.split('\n')[0] ?? '' };
    case 'loaded': {
      const missing = whyIncomplete(requests, bad, answered, expected);
      return missing === undefined ? { outcome: 'completed' } : { outcome: 'incomplete', reason: missing };
    }
  }
}

/** Of a page that is not ours nobody knows how many requests it makes, nor which may fail: its document has to come. */
function outcomeOfDocument(
  end: LoadEnd,
  [document]: readonly DevToolsRequest[],
): Pick<BrowserSide, 'outcome' | 'reason'> {
  if (end.kind === 'timeout') return { outcome: 'timeout', reason: `no load event in ${end.seconds} s` };
  if (end.kind === 'failed') return { outcome: 'failed', reason: end.error.split('\n')[0] ?? '' };
  if (document !== undefined && isAnswered(document)) return { outcome: 'completed' };
  return { outcome: 'incomplete', reason: `the document was answered with ${document?.status ?? 'nothing'}` };
}

function whyIncomplete(
  requests: readonly DevToolsRequest[],
  bad: DevToolsRequest | undefined,
  answered: number,
  expected: number,
): string | undefined {
  if (bad !== undefined) {
    const what = bad.error ?? (bad.status !== undefined && bad.status >= 400 ? `status ${bad.status}` : 'no end');
    return `${answered} of ${expected} requests answered; ${bad.url}: ${what}`;
  }
  return requests.length === expected ? undefined : `the page made ${requests.length} requests, not ${expected}`;
}

/** Whether a response came whole, with a status of success. */
export function isAnswered(request: DevToolsRequest): boolean {
  return isWhole(request) && (request.status ?? 0) < 400;
}

function isWhole({ finished, error, status }: DevToolsRequest): boolean {
  return finished && error === undefined && status !== undefined;
}
