import { connection } from 'next/server';
import { Suspense } from 'react';

async function Late() {
  await connection();
  await new Promise((resolve) => setTimeout(resolve, 20));
  return <p>late</p>;
}

export default function Page() {
  return (
    <Suspense fallback={<p>waiting</p>}>
      <Late />
    </Suspense>
  );
}
