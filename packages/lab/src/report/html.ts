/** Markup that needs no escaping. */
export class Html {
  constructor(readonly markup: string) {}
}

type Part = Html | string | number | undefined | readonly Part[];

/**
 * Template tag for markup: escapes text, inserts markup and lists of it unchanged, and omits
 * undefined.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.reduce((text, string, at) => text + render(parts[at - 1]) + string));
}

/**
 * Renders text for a paragraph, with `code` between backticks as in Markdown, which uses the same
 * text.
 */
export function prose(text: string): Html {
  const parts = text.split(/(`[^`]+`)/);
  return html`${parts.map((part, at) => (at % 2 === 0 ? part : html`<code>${part.slice(1, -1)}</code>`))}`;
}

function render(part: Part): string {
  if (part === undefined) return '';
  if (part instanceof Html) return part.markup;
  if (typeof part === 'string' || typeof part === 'number') return escape(String(part));
  return part.map(render).join('');
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** Formats a number for a drawing's attribute: two decimals, without trailing zeros. */
export function coordinate(value: number): string {
  return String(Math.round(value * 100) / 100);
}
