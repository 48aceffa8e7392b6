// Ask once streamed and once whole with OpenAI's own client; one line each.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, maxRetries: 0 });
const request = { model, messages: [{ role: "user", content: "Speak." }] };

let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
const whole = await client.chat.completions.create(request);
console.log(streamed);
console.log(whole.choices[0].message.content);
