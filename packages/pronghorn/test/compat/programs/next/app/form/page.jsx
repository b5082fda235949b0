import { redirect } from 'next/navigation';

async function send(data) {
  'use server';
  redirect(`/?name=${data.get('name')}`);
}

export default function Page() {
  return (
    <form action={send}>
      <input name="name" />
    </form>
  );
}
