// OpenAI's client for Node.js against a real engine whose every answer is known: BASE_URL KEY MODEL, JSON on stdout.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 120000 });
const input = "Speak.";
const messages = [{ role: "user", content: input }];
const chat = await client.chat.completions.create({ model, messages });
const response = await client.responses.create({ model, input });
let text = "";
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
  text += chunk.choices[0]?.delta?.content ?? "";
let delta = "";
let last;
for await (const event of await client.responses.create({ model, input, stream: true })) {
  if (event.type === "response.output_text.delta") delta += event.delta;
  last = event;
}
console.log(
  JSON.stringify([
    [chat.choices[0].message.content, chat.usage.completion_tokens],
    [response.output_text, response.usage.output_tokens],
    [text, null],
    [delta, last.response.usage.output_tokens],
  ]),
);
