import type { BrowserSide, DevToolsRequest } from '../samples/sample.js';
import {
  completenessOf,
  documentOf,
  isAnsweredAs,
  type Completeness,
  type Expected,
} from './expected.js';

/** How the navigation ended. */
export type LoadEnd =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'timeout'; readonly seconds: number }
  | { readonly kind: 'failed'; readonly error: string };

/** Returns the outcome of a load, from the end of its navigation and the state of its requests. */
export function outcomeOf(
  end: LoadEnd,
  requests: readonly DevToolsRequest[],
  expected: Expected,
  loadEventMs?: number,
): Pick<BrowserSide, 'outcome' | 'reason' | 'documentFault'> {
  const fault = documentFault(end, documentOf(requests, loadEventMs), expected);
  return {
    ...ending(end, requests, expected, loadEventMs, fault),
    ...(fault !== undefined && { documentFault: fault }),
  };
}

function ending(
  end: LoadEnd,
  requests: readonly DevToolsRequest[],
  expected: Expected,
  loadEventMs: number | undefined,
  fault: string | undefined,
): Pick<BrowserSide, 'outcome' | 'reason'> {
  const completeness = completenessOf(requests, expected, loadEventMs);
  const { answered, of } = completeness;
  switch (end.kind) {
    case 'timeout': {
      const counted =
        expected.kind === 'document' ? '' : `; ${answered} of ${of} requests answered`;
      return { outcome: 'timeout', reason: `no load event in ${end.seconds} s${counted}` };
    }
    case 'failed':
      return { outcome: 'failed', reason: firstLine(end.error) };
    case 'loaded': {
      const why = (expected.kind === 'document' ? fault : undefined) ?? whyIncomplete(completeness);
      return why === undefined ? { outcome: 'completed' } : { outcome: 'incomplete', reason: why };
    }
  }
}

/**
 * Returns why the browser shows something other than the page: an error page of the browser or the
 * server, whose times are not the page's. Undefined too if the document was not answered at all, in
 * which case there are no times.
 */
function documentFault(
  end: LoadEnd,
  document: DevToolsRequest | undefined,
  expected: Expected,
): string | undefined {
  const status = document?.status;
  const recorded = expected.kind === 'recording' ? expected.documentStatus : undefined;
  if (status !== undefined && status >= 400 && status !== recorded)
    return `the document has status ${status}`;
  if (end.kind === 'failed') return firstLine(end.error);
  const isThere = document !== undefined && isAnsweredAs(recorded ?? 200)(document);
  return end.kind === 'loaded' && expected.kind === 'document' && !isThere
    ? 'the document has no response'
    : undefined;
}

function whyIncomplete({ answered, of, bad, problem }: Completeness): string | undefined {
  if (bad !== undefined) {
    const what =
      bad.error ??
      (bad.status !== undefined && bad.status >= 400 ? `status ${bad.status}` : 'not finished');
    return `${answered} of ${of} requests answered; ${bad.url}: ${what}`;
  }
  return problem === undefined ? undefined : `${answered} of ${of} requests answered; ${problem}`;
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? '';
}
