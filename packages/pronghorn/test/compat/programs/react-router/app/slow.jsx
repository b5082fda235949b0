import { Suspense } from 'react';
import { Await } from 'react-router';

export const loader = () => ({ late: new Promise((resolve) => setTimeout(resolve, 20, 'late')) });

export default function Slow({ loaderData }) {
  return (
    <Suspense fallback={<p>waiting</p>}>
      <Await resolve={loaderData.late}>{(text) => <p>{text}</p>}</Await>
    </Suspense>
  );
}
