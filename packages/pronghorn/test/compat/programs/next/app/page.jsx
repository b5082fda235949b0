import { cookies, headers } from 'next/headers';
import { Counter } from './counter';

export const dynamic = 'force-dynamic';

export default async function Page({ searchParams }) {
  const { name = 'you' } = await searchParams;
  const agent = (await headers()).get('user-agent');
  const visited = (await cookies()).get('visited')?.value ?? 'no';
  return (
    <main>
      <p>{`hello ${name}, ${agent}, visited: ${visited}`}</p>
      <Counter />
    </main>
  );
}
