export async function GET(request) {
  const { searchParams, pathname } = new URL(request.url);
  const headers = { 'x-own': '1', 'set-cookie': 'visited=yes; Path=/' };
  return Response.json({ pathname, query: Object.fromEntries(searchParams) }, { headers });
}

export async function POST(request) {
  return Response.json({ size: (await request.text()).length }, { status: 201 });
}
