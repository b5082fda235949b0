import type { BrowserSide, DevToolsRequest } from '../sample.js';

/** How the navigation ended. */
export type LoadEnd =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'timeout'; readonly seconds: number }
  | { readonly kind: 'failed'; readonly error: string };

/** The outcome of a load, from how the navigation ended and what became of its requests. */
export function outcomeOf(
  end: LoadEnd,
  requests: readonly DevToolsRequest[],
  expected: number,
): Pick<BrowserSide, 'outcome' | 'reason'> {
  const answered = requests.filter(isAnswered).length;
  switch (end.kind) {
    case 'timeout':
      return {
        outcome: 'timeout',
        reason: `no load event in ${end.seconds} s; ${answered} of ${expected} requests answered`,
      };
    case 'failed':
      return { outcome: 'failed', reason: end.error.split('\n')[0] ?? '' };
    case 'loaded': {
      const missing = whyIncomplete(requests, answered, expected);
      return missing === undefined ? { outcome: 'completed' } : { outcome: 'incomplete', reason: missing };
    }
  }
}

function whyIncomplete(requests: readonly DevToolsRequest[], answered: number, expected: number): string | undefined {
  const bad = requests.find((request) => !isAnswered(request));
  if (bad !== undefined) {
    const what = bad.error ?? (bad.status !== undefined && bad.status >= 400 ? `status ${bad.status}` : 'no end');
    return `${answered} of ${expected} requests answered; ${bad.url}: ${what}`;
  }
  return requests.length === expected ? undefined : `the page made ${requests.length} requests, not ${expected}`;
}

/** Whether a response came whole, with a status of success. */
export function isAnswered({ finished, error, status }: DevToolsRequest): boolean {
  return finished && error === undefined && status !== undefined && status < 400;
}
