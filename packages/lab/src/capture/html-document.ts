/** Parses parts of an HTML document without a browser. */

/** Returns the text of `<title>`. */
export function titleOf(html: string): string | undefined {
  const title = /<title[^>]*>([^<]*)<\/title>/i.exec(html)?.[1]?.trim().replaceAll(/\s+/g, ' ');
  return title === '' ? undefined : title;
}

/**
 * Returns a load's icon URLs: those that the document names, or the browsers' default path if it
 * names none.
 */
export function iconsOf(
  html: string,
  base: string,
  loaded: readonly { readonly url: string }[],
): ReadonlySet<string> {
  const links = [...html.matchAll(/<link\b[^>]*>/gi)].map(([tag]) => tag);
  const named = links.flatMap((tag) => {
    const rel = attribute(tag, 'rel')?.toLowerCase().split(/\s+/) ?? [];
    const href = attribute(tag, 'href');
    const isIcon = rel.some(
      (word) => word === 'icon' || word.startsWith('apple-touch-icon') || word === 'mask-icon',
    );
    return isIcon && href !== undefined && URL.canParse(href, base)
      ? [new URL(href, base).href]
      : [];
  });
  const customary = loaded
    .map(({ url }) => url)
    .filter((url) => new URL(url).pathname === '/favicon.ico');
  return new Set([...named, ...customary]);
}

function attribute(tag: string, name: string): string | undefined {
  const [, double, single, bare] =
    new RegExp(`\\b${name}\\s*=\\s*(?:"([^"]*)"|'([^']*)'|([^\\s"'>]+))`, 'i').exec(tag) ?? [];
  return double ?? single ?? bare;
}
