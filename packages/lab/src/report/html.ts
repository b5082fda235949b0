/** Markup that is safe to put into a document as it is. */
export class Html {
  constructor(readonly markup: string) {}
}

type Part = Html | string | number | undefined | readonly Part[];

/** A template for markup: text is escaped, markup and lists of it are taken as they are, undefined is nothing. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.reduce((text, string, at) => text + render(parts[at - 1]) + string));
}

/** Text for a paragraph in which `code` stands between backticks, as in Markdown, where the same text goes too. */
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

/** A number for an attribute of a drawing: two decimals, without trailing zeros. */
export function coordinate(value: number): string {
  return String(Math.round(value * 100) / 100);
}
